"""Which blocks are sent a salt for each tenant: those that are known to be an engine, priced by its time or not."""

from typing import Any

import pytest

from gateway.composition.backend_table import build_backend_table
from gateway.config.engine_curve import ASSUMED, fit_engine
from gateway.config.settings import Settings
from gateway.pricing.catalogue import PriceBook

RULES = """\
version: 1
models: {m: {backend: mine, upstream_model: m, context_window: 1000}}
rules: [{name: all, choose: {from: [m]}}]
"""
SPEED = {"prefill_tokens_per_second": 8000, "points": [[1, 90], [16, 1000], [64, 2400]]}


@pytest.mark.parametrize(
    ("block", "takes_salt"),
    [
        ({"health_from": "vllm"}, True),
        ({"health_from": "sglang"}, True),
        ({"health_from": "engine"}, True),
        ({"gpu_hour_usd": "2.00", "throughput": SPEED}, True),
        ({"provider": "openai"}, False),
        ({}, False),
    ],
)
def test_an_engine_keeps_tenants_apart(block: dict[str, Any], takes_salt: bool) -> None:
    """vLLM 0.32.0 without a salt told one tenant, in `cached_tokens`, that another had sent the same prompt."""
    mine = {"mine": {"base_url": "http://10.0.0.5/v1", **block}}
    settings = Settings.model_validate({"simulated_hosted": "never", "engine": {"is_enabled": False}, "backends": mine})
    catalogue = build_backend_table(settings, {}, None, fit_engine(ASSUMED)).catalogue()
    document = catalogue.parse(RULES, file="rules.yaml")
    snapshot = catalogue.snapshot(document, PriceBook([]), classifier_version="c", at_us=0)
    assert snapshot.candidates["m"].takes_salt is takes_salt
