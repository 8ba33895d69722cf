"""Clouds' meters, as real bills and price lists write them, are of our model, or of none."""

import pytest

from gateway.reports.charged import model_key
from gateway.reports.meter_names import MeterNames
from gateway.reports.reconcile_views import ReconcileBody
from gateway.reports.services import build_report_services
from gateway.rulebook.catalogue import BackendFacts, Catalogue
from gateway.storage.sql.reports import SqlReports
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.reports.month import NOTHING, NOW_US, Month

OURS = {
    "bedrock/us.anthropic.claude-sonnet-4-6": "claude-sonnet-4-6",
    "bedrock/converse/eu.anthropic.claude-haiku-4-5-20251001-v1:0": "claude-haiku-4-5",
    "bedrock/anthropic.claude-3-5-sonnet-20241022-v2:0": "claude-3-5-sonnet-v2",
    "bedrock/anthropic.claude-opus-4-8": "claude-opus-4-8",
    "bedrock/amazon.nova-2-lite-v1:0": "nova-2-lite",
    "bedrock/openai.gpt-oss-120b-1:0": "gpt-oss-120b-1",
    "openai.gpt-oss-20b": "gpt-oss-20b",
    "bedrock/us.deepseek.r1-v1:0": "r1",
    "azure/chat-eu": "gpt-5-4-mini",
    "azure/gpt-5.4": "gpt-5-4",
    "azure/gpt-4.5-preview": "gpt-4-5",
    "gpt-4o-2024-05-13": "gpt-4o",
    "o4-mini": "o4-mini",
    "gpt-image-1.5": "gpt-image-1-5",
    "azure_ai/deepseek-v4-pro": "deepseek-v4-pro",
    "azure_ai/claude-sonnet-5": "claude-sonnet-5",
    "vertex_ai/gemini-3.8-flash": "gemini-3-8-flash",
    "gemini-3-flash-preview": "gemini-3-flash",
    "gemini-2.5-flash-lite": "gemini-2-5-flash-lite",
    "vertex_ai/claude-opus-4-5@20251101": "claude-opus-4-5",
    "gemini-3-pro-image": "gemini-3-pro-image",
    "gemini-embedding-001": "gemini-embedding-001",
}
PRICED_AS = {"azure/chat-eu": "openai/gpt-5.4-mini"}
NAMES = MeterNames(OURS, PRICED_AS)


@pytest.mark.parametrize(("ours", "name"), OURS.items())
def test_our_names_are_as_a_cloud_bills_them(ours: str, name: str) -> None:
    assert NAMES.of_ours(ours) == name


def test_what_a_cloud_bills_as_one_model_is_one() -> None:
    names = MeterNames(["bedrock/us.anthropic.claude-opus-4-8", "bedrock/eu.anthropic.claude-opus-4-8", "", "x"], {})
    assert names.of_ours("bedrock/us.anthropic.claude-opus-4-8") == names.of_ours(
        "bedrock/eu.anthropic.claude-opus-4-8"
    )
    assert (names.of_ours(""), names.of_ours("x"), names.of_meter("input tokens")) == ("", "x", "input tokens")


@pytest.mark.parametrize(
    ("meter", "name"),
    [
        ("Claude4.6Sonnet-cache-read-input-token-count-cross-region-global", "claude-sonnet-4-6"),
        ("Claude Haiku 4.5", "claude-haiku-4-5"),
        ("Claude 3.5 Sonnet v2", "claude-3-5-sonnet-v2"),
        ("claude-opus-4-8-mantle-cache-write-tokens-1h-standard", "claude-opus-4-8"),
        ("Nova2.0Lite-output-tokens-flex", "nova-2-lite"),
        ("gpt-oss-20b-mantle-input-tokens-standard", "gpt-oss-20b"),
        ("gpt 5.4 mini cd Inp Gl 1M Tokens", "gpt-5-4-mini"),
        ("gpt 5.4 opt Gl 1M Tokens", "gpt-5-4"),
        ("gpt 5.4 LongCo inp Dz 1M Tokens", "gpt-5-4"),
        ("gpt 4.5 Inp glbl Tokens", "gpt-4-5"),
        ("gpt 4o 0513 Input Data Zone Tokens", "gpt-4o"),
        ("o4-mini 0416 cached Inp glbl Tokens", "o4-mini"),
        ("gpt-image-1.5 Text inp glbl", "gpt-image-1-5"),
        ("gpt-image-1.5 image outpt Gl 1M Tokens", "gpt-image-1-5"),
        ("deepseek V4 Pro Outp DZ Tokens", "deepseek-v4-pro"),
        ("claude Sonnet 5 Cd Inp glbl", "claude-sonnet-5"),
        ("Gemini 3.8 Flash Global Text Input - Predictions", "gemini-3-8-flash"),
        ("Gemini 3.8 Flash Text Input Caching Storage", "gemini-3-8-flash"),
        ("Gemini 3.8 Flash Audio Input Priority - Predictions", "gemini-3-8-flash"),
        ("Generate_content text cached input token count for gemini 3 flash", "gemini-3-flash"),
        (
            "Generate content output token count gemini 2.5 flash lite short output text non-thinking",
            OURS["gemini-2.5-flash-lite"],
        ),
        ("EmbedContent input token count for gemini-embedding-001", "gemini-embedding-001"),
        ("Generate_content image output token count for Gemini 3 Pro Image", "gemini-3-pro-image"),
        ("Claude Opus 4.5 Output Tokens", "claude-opus-4-5"),
    ],
)
def test_a_meter_is_of_our_model(meter: str, name: str) -> None:
    assert NAMES.of_meter(meter) == name


@pytest.mark.parametrize(
    ("meter", "name"),
    [
        ("Claude4.6Opus-input-tokens", "claude4-6opus"),
        ("gpt 5.4 nano Inp Gl 1M Tokens", "gpt-5-4-nano"),
        ("gpt 4o mini 0718 Outp glbl Tokens", "gpt-4o-mini"),
        ("Gemini 3.8 Flash Lite Text Output - Predictions", "gemini-3-8-flash-lite-text"),
        ("Gemini 3.8 Flash Image Text Input - Predictions", "gemini-3-8-flash-image-text"),
        ("Guardrail-ContentPolicyUnitsConsumed", "guardrail-contentpolicyunitsconsumed"),
    ],
)
def test_a_meter_with_another_word_is_of_another_model(meter: str, name: str) -> None:
    assert NAMES.of_meter(meter) == name


@pytest.mark.parametrize("name", ["Чат", "Preview"])
def test_a_deployment_that_no_meter_can_name_is_called_as_named_calls_it(name: str) -> None:
    """`--named` said that there is no such model, and that there is."""
    assert MeterNames([name], {}).of_ours(name) == model_key(name)


class Asked(SqlReports):
    """Sums of one deployment's requests, whatever is asked."""

    async def sums(self, query: SumsQuery) -> list[Sums]:
        return [Sums({"day": "2026-11-03", "upstream_model": "azure/chat-eu"}, requests=1)]


async def test_the_rules_say_what_a_deployment_is_priced_as(month: Month) -> None:
    catalogue = Catalogue({"azure": BackendFacts(provider="azure")}, {})
    rules = catalogue.parse(
        "version: 1\nmodels: {chat: {backend: azure, upstream_model: azure/chat-eu, priced_as: openai/gpt-5.4-mini, "
        "context_window: 9}}\nrules: [{name: default, choose: {from: [chat]}}]",
        file="rules.yaml",
    )
    snapshot = catalogue.snapshot(rules, month.deployment.prices, classifier_version="", at_us=NOW_US)
    built = build_report_services(
        Asked(month.database), NOTHING, lambda: month.deployment, lambda: snapshot, lambda: NOW_US
    )
    bill = (
        "date,meterCategory,meterSubCategory,meterName,billingCurrency,costInBillingCurrency\n"
        "11/03/2026,Foundry Models,Azure OpenAI GPT5,5.4 mini inp Gl 1M Tokens,USD,0.5\n"
    )
    view = await built.reconciliations.reconcile(ReconcileBody(provider="azure", export=bill))
    assert [(row.model, row.our_requests, row.their_usd) for row in view.rows] == [
        ("gpt-5-4-mini", 1, "0.500000000000")
    ]
