"""Clouds' bills, with columns as documented, read to the pico-dollar: other services, credits and currencies too."""

import json
from datetime import date

import pytest

from gateway.errors import InvalidRequest
from gateway.reports.charged import Charged, UnknownExport
from gateway.reports.invoices import parse_export
from gateway.reports.reconcile_service import ReconcileService, view_of
from tests.unit.gateway.api.memory_stores import NoSums

DAY = date(2026, 11, 3)
NEXT = date(2026, 11, 4)
CENT = 10**10

CUR2_COLUMNS = (
    "bill_bill_type,bill_payer_account_id,line_item_usage_account_id,line_item_line_item_type,"
    "line_item_usage_start_date,line_item_usage_end_date,line_item_product_code,line_item_usage_type,"
    "line_item_usage_amount,line_item_currency_code,line_item_unblended_cost,line_item_line_item_description,"
    "line_item_iam_principal,product,pricing_unit\n"
)


def cur2(kind: str, start: str, end: str, code: str, usage: str, cost: str, product: str = "Amazon Bedrock") -> str:
    said = json.dumps({"product_name": product, "region": "us-east-1"}).replace('"', '""')
    return f'Anniversary,111,222,{kind},{start},{end},{code},{usage},1.5,USD,{cost},per 1K tokens,,"{said}",1K tokens\n'


HOUR = ("2026-11-03T07:00:00.000Z", "2026-11-03T08:00:00.000Z")
LATER = ("2026-11-03T23:00:00.000Z", "2026-11-04T00:00:00.000Z")
OPUS = "Claude Opus 5.5 (Amazon Bedrock Edition)"
CUR2 = CUR2_COLUMNS + "".join(
    [
        cur2("Usage", *HOUR, "AmazonBedrock", "USE1-Claude4.6Sonnet-input-tokens-cross-region-global", "0.0000171"),
        cur2("Usage", *LATER, "AmazonBedrock", "USE1-Claude4.6Sonnet-input-tokens-cross-region-global", "1.71E-5"),
        cur2("EdpDiscount", *LATER, "AmazonBedrock", "USE1-Claude4.6Sonnet-output-tokens", "-0.0000042"),
        cur2("Usage", *HOUR, "AmazonBedrock", "USW2-anthropic.claude-opus-4-8-mantle-input-tokens-standard", "0.25"),
        cur2("Usage", *HOUR, "5e7p6lt32bodb2nm", "EUC1-MP:EUC1_output_tokens_global_standard-Units", "0.11", OPUS),
        cur2("Refund", *LATER, "5e7p6lt32bodb2nm", "EUC1-MP:EUC1_output_tokens_global_standard-Units", "-0.01", OPUS),
        cur2("Credit", *LATER, "AmazonBedrock", "USE1-Claude4.6Sonnet-output-tokens", "-0.05"),
        cur2("Tax", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "AmazonBedrock", "", "9"),
        cur2("Usage", *HOUR, "AmazonBedrockAgentCore", "USE1-Consumption-based:Runtime:vCPU", "7"),
        cur2("Usage", "2026-11-04T00:00:00Z", "2026-12-01T00:00:00Z", "AmazonRoute53", "HostedZone", "3", "DNS"),
    ]
)
LEGACY_CUR = """\
identity/LineItemId,bill/BillType,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,\
lineItem/ProductCode,lineItem/UsageType,lineItem/UsageAmount,lineItem/CurrencyCode,lineItem/UnblendedCost,\
lineItem/LineItemDescription,product/ProductName
a,Anniversary,Usage,2026-11-03T07:00:00Z,2026-11-03T08:00:00Z,AmazonBedrock,USE1-NovaLite-input-tokens,9,USD,0.5,$,Bedrock
b,Anniversary,Usage,2026-11-03T07:00:00Z,2026-11-03T08:00:00Z,8eqfd2,USE1-MP:USE1_InputTokenCount-Units,9,USD,1,$,\
Claude 3.5 Sonnet v2 (Amazon Bedrock Edition)
"""
AZURE = """\
invoiceId,billingPeriodStartDate,date,serviceFamily,consumedService,meterId,meterName,meterCategory,meterSubCategory,\
ProductName,ResourceId,quantity,unitOfMeasure,chargeType,billingCurrency,costInBillingCurrency,costInUsd,additionalInfo,tags
G1,11/01/2026,11/03/2026,AI,Microsoft.CognitiveServices,m1,5.4 inp Gl 1M Tokens,Foundry Models,Azure OpenAI GPT5,,/s/a,\
2,1M,Usage,EUR,4.3,5.0,,
G1,11/01/2026,11/03/2026,AI,Microsoft.CognitiveServices,m2,gpt 4o 0513 Input global Tokens,Cognitive Services,\
Azure OpenAI,,/s/a,2,1K,Usage,USD,0.1,0.1,,
G1,11/01/2026,11/03/2026,AI,Microsoft.CognitiveServices,m3,V4 Pro Outp DZ Tokens,Foundry Models,\
Azure Deepseek Models,,/s/a,2,1K,Refund,USD,-0.02,-0.02,,
G1,11/01/2026,11/04/2026,AI,Microsoft.CognitiveServices,m4,S1 Speech To Text,Cognitive Services,Speech,,/s/b,\
2,1 Hour,Usage,EUR,1,,,
G1,11/01/2026,11/04/2026,Compute,Microsoft.Compute,m5,D4s v5,Virtual Machines,Dv5 Series,,/s/c,24,1 Hour,Usage,EUR,9,,,
"""
AZURE_ANALYSIS = """\
"UsageDate","ResourceId","ResourceType","ResourceLocation","ResourceGroupName","ServiceName","ServiceTier","Meter",\
"CostUSD","Cost","Currency"
"2026-11-03","/s/a","microsoft.cognitiveservices/accounts","US East 2","rg","Foundry Models","Azure OpenAI GPT5",\
"5.3 codex inp Gl 1M Tokens","10.5","9.1","EUR"
"""


def google(
    service: str, sku: str, cost: str, start: str = "2026-11-03 07:00:00 UTC", **more: object
) -> dict[str, object]:
    return {
        "billing_account_id": "01",
        "service": {"id": "C7E2", "description": service},
        "sku": {"id": "7EBE", "description": sku},
        "usage_start_time": start,
        "usage_end_time": start,
        "project": {"id": "p"},
        "cost": cost,
        "currency": "USD",
        "currency_conversion_rate": "1",
        "usage": {"amount": "5", "unit": "count"},
        "credits": [],
        "cost_type": "regular",
        **more,
    }


PROMOTION = {"name": "Trial", "amount": -0.03, "type": "PROMOTION"}
GOOGLE = [
    google("Vertex AI", "Gemini 3.8 Flash Global Text Input - Predictions", "0.0000015"),
    google(
        "Gemini API",
        "Generate content output token count gemini 3.8 flash text",
        "0.10",
        credits=[{"name": "Deal", "amount": "-0.02", "type": "DISCOUNT"}, PROMOTION],
    ),
    google("Claude Opus 5", "Claude Opus 5 Output Tokens", "15.0", currency="JPY", currency_conversion_rate="150"),
    google("Gemini API", "Grounding with Google Search on Gemini 3", "0.14", "2026-11-04T01:00:00+00:00"),
    google("Gemini API", "Generate content output token count gemini 3.8 flash text", "0.01", cost_type="tax"),
    google("Vertex AI", "Custom Training Compute n1-standard-4", "8"),
    google("Compute Engine", "N1 Predefined Instance Core", "8", currency="EUR", currency_conversion_rate=None),
]
FOCUS_AMAZON = """\
BilledCost,BillingCurrency,ChargeCategory,ChargeDescription,ChargePeriodStart,ChargePeriodEnd,EffectiveCost,ListCost,\
ProviderName,ServiceName,SkuId,x_ServiceCode,x_UsageType
0.5,USD,Usage,$ per 1K tokens,2026-11-03T00:00:00Z,2026-11-04T00:00:00Z,0.4,1,AWS,Amazon Bedrock,S,AmazonBedrock,\
USE1-Claude4.6Sonnet-output-tokens
0.25,USD,Usage,$,2026-11-03T00:00:00Z,2026-11-04T00:00:00Z,0.4,1,AWS,Claude Opus 5.5 (Amazon Bedrock Edition),S,8eqf,\
USE1-MP:USE1_input_tokens_standard-Units
-0.1,USD,Credit,,2026-11-03T00:00:00Z,2026-11-04T00:00:00Z,0,0,AWS,Amazon Bedrock,S,AmazonBedrock,
1,USD,Tax,,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,0,0,AWS,Amazon Bedrock,S,AmazonBedrock,
4,USD,Usage,,2026-11-04T00:00:00Z,2026-11-05T00:00:00Z,0,0,AWS,Amazon Simple Storage Service,S,AmazonS3,USE1-x
"""
FOCUS_AZURE = """\
BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ServiceName,x_SkuMeterCategory,\
x_SkuMeterName,x_SkuMeterSubcategory,x_BilledCostInUsd
4.3,EUR,Usage,2026-11-03T00:00:00Z,2026-11-04T00:00:00Z,Azure OpenAI,Foundry Models,5.4 opt Gl 1M Tokens,\
Azure OpenAI GPT5,5
"""
FOCUS_GOOGLE = {
    "BilledCost": 0.5,
    "BillingCurrency": "USD",
    "ChargeCategory": "Usage",
    "ChargePeriodStart": "2026-11-03T07:00:00Z",
    "ChargePeriodEnd": "2026-11-03T08:00:00Z",
    "ServiceName": "Vertex AI",
    "ChargeDescription": "Gemini 3.8 Flash Global Text Output - Predictions",
}


def meter(name: str, pico_usd: int, day: date = DAY) -> Charged:
    return Charged(day, name, pico_usd, is_meter=True)


@pytest.mark.parametrize(
    ("export", "days", "expected"),
    [
        (
            CUR2,
            (DAY, NEXT),
            [
                meter("claude-opus-4-8-mantle-input-tokens-standard", 25 * CENT),
                meter("claude-opus-5-5", 10 * CENT),
                meter("claude4-6sonnet-input-tokens-cross-region-global", 34_200_000),
                meter("claude4-6sonnet-output-tokens", -4_200_000),
            ],
        ),
        (LEGACY_CUR, (DAY,), [meter("claude-3-5-sonnet-v2", 100 * CENT), meter("novalite-input-tokens", 50 * CENT)]),
        (
            AZURE,
            (DAY, NEXT),
            [
                meter("deepseek-v4-pro-outp-dz-tokens", -2 * CENT),
                meter("gpt-4o-0513-input-global-tokens", 10 * CENT),
                meter("gpt-5-4-inp-gl-1m-tokens", 500 * CENT),
            ],
        ),
        (AZURE_ANALYSIS, (DAY,), [meter("gpt-5-3-codex-inp-gl-1m-tokens", 1050 * CENT)]),
        (
            "\n".join(map(json.dumps, GOOGLE)),
            (DAY, NEXT),
            [
                meter("claude-opus-5-output-tokens", 10 * CENT),
                meter("gemini-3-8-flash-global-text-input---predictions", 1_500_000),
                meter("generate-content-output-token-count-gemini-3-8-flash-text", 8 * CENT),
                Charged(NEXT, "google-search", 14 * CENT, tool="web_searches"),
            ],
        ),
        (
            FOCUS_AMAZON,
            (DAY, NEXT),
            [
                meter("claude-opus-5-5", 25 * CENT),
                meter("claude4-6sonnet-output-tokens", 50 * CENT),
            ],
        ),
        (  # Amazon's FOCUS 1.2 has the usage type in SkuMeter
            FOCUS_AMAZON.replace("SkuId,x_ServiceCode,x_UsageType", "SkuId,x_ServiceCode,SkuMeter"),
            (DAY, NEXT),
            [
                meter("claude-opus-5-5", 25 * CENT),
                meter("claude4-6sonnet-output-tokens", 50 * CENT),
            ],
        ),
        (FOCUS_AZURE, (DAY,), [meter("gpt-5-4-opt-gl-1m-tokens", 500 * CENT)]),
        (
            json.dumps([FOCUS_GOOGLE]),
            (DAY,),
            [meter("gemini-3-8-flash-global-text-output---predictions", 50 * CENT)],
        ),
    ],
)
def test_a_clouds_bill_is_read_exactly(export: str, days: tuple[date, ...], expected: list[Charged]) -> None:
    read = parse_export(export)
    assert (read.days, sorted(read.lines, key=lambda line: (line.day, line.model))) == (
        days,
        sorted(expected, key=lambda line: (line.day, line.model)),
    )


def test_a_list_of_rows_is_the_same_as_a_row_a_line() -> None:
    assert parse_export(json.dumps(GOOGLE)) == parse_export("\n".join(map(json.dumps, GOOGLE)))


REFUND = cur2("Refund", "2026-10-05T00:00:00Z", "2026-10-05T01:00:00Z", "AmazonBedrock", "USE1-NovaLite-tokens", "-1")


async def test_a_refund_of_an_earlier_day_does_not_make_its_month_look_unbilled() -> None:
    """`--book` would have taken all that October cost out of the books."""
    october = date(2026, 10, 5)
    service = ReconcileService(NoSums())
    assert parse_export(CUR2 + REFUND.replace("AmazonBedrock", "AmazonS3").replace("Amazon B", "B")).days == (DAY, NEXT)
    with pytest.raises(InvalidRequest, match="usage of 2026-11-03 to 2026-11-04, and a refund or fee of 2026-10-05"):
        await service.compare("bedrock", CUR2 + REFUND)
    assert (await service.compare("bedrock", CUR2 + REFUND, october)).first_day == october
    assert (await service.compare("bedrock", CUR2 + REFUND, DAY)).first_day == DAY
    assert parse_export(CUR2_COLUMNS + REFUND).days == (october,)


BESIDE = {"credits": "-0.050000000000", "other services": "10.000000000000", "taxes": "9.000000000000"}
BESIDE_FOCUS = {"credits": "-0.100000000000", "other services": "4.000000000000", "taxes": "1.000000000000"}


@pytest.mark.parametrize(
    ("export", "days", "theirs", "left_out"),
    [
        (CUR2, (None, None), "0.350030000000", BESIDE),
        (CUR2 + REFUND, (DAY, NEXT), "0.350030000000", BESIDE | {"other days": "-1.000000000000"}),
        (AZURE, (None, None), "5.080000000000", {"other services": None}),
        (json.dumps(GOOGLE[:2]), (None, None), "0.080001500000", {"credits": "-0.030000000000"}),
        (json.dumps(GOOGLE[:1]), (None, None), "0.000001500000", {}),
        (FOCUS_AMAZON, (None, None), "0.750000000000", BESIDE_FOCUS),
    ],
)
async def test_what_is_not_compared_is_said_so_that_the_bill_adds_up(
    export: str, days: tuple[date | None, date | None], theirs: str, left_out: dict[str, str | None]
) -> None:
    view = view_of(await ReconcileService(NoSums()).compare("bedrock", export, *days))
    assert (view.their_usd, view.left_out_usd) == (theirs, left_out)


def test_the_same_file_twice_is_refused() -> None:
    with pytest.raises(UnknownExport, match="would count twice"):
        parse_export(CUR2, CUR2)


def test_parts_of_an_export_add_up() -> None:
    lines = CUR2.splitlines(keepends=True)
    parts = CUR2_COLUMNS + "".join(lines[1:3]), CUR2_COLUMNS + "".join(lines[3:])
    assert parse_export(*parts) == parse_export(CUR2)


@pytest.mark.parametrize(
    ("export", "problem"),
    [
        (AZURE.replace("4.3,5.0", "4.3,"), "not in USD"),
        (AZURE.replace("USD,0.1,0.1", "USD,,"), "'' is not an amount"),
        (CUR2.replace(",USD,", ",CNY,"), "not in USD"),
        (CUR2.replace(",product,", ",p,"), "in the column `product`; export that too"),
        (CUR2.replace("2026-11-03T08:00:00.000Z", "2026-12-01T00:00:00Z"), "whole months; export it again by day"),
        (FOCUS_AMAZON.replace("2026-11-04T00:00:00Z", "2026-12-01T00:00:00Z"), "whole months"),
        (AZURE.replace("11/03/2026", "23/11/2026"), "cannot be read"),
        (CUR2.replace("0.0000171", "much"), "'much' is not an amount"),
        (json.dumps([{**GOOGLE[0], "currency": "EUR", "currency_conversion_rate": 0}]), "not in USD"),
        (json.dumps([{**GOOGLE[0], "currency": "EUR", "currency_conversion_rate": "0"}]), "cannot be read"),
        ('{"a": 1}\n{"a": 2', "cannot be read"),
    ],
)
def test_a_bill_that_cannot_be_compared_is_refused_in_words(export: str, problem: str) -> None:
    with pytest.raises(UnknownExport, match=problem):
        parse_export(export)
