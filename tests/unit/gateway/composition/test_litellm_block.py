"""A provider that is reached through litellm only, from its configuration block to the arguments of the call."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from backends.errors import UpstreamUnavailable
from backends.protocol import Call
from gateway.composition.backend_table import BackendTable, build_backend_table
from gateway.config.engine_curve import load_engine_curve
from gateway.config.settings import BackendSettings, Settings

AZURE = {"litellm": {"api_base": "https://my.example", "api_version": "2025"}, "api_key_env": "AZURE_KEY"}


def build(tmp_path: Path, block: Mapping[str, object], environ: Mapping[str, str]) -> BackendTable:
    settings = Settings.model_validate({"engine": {"is_enabled": False}, "backends": {"azure": block}})
    return build_backend_table(settings, environ, None, load_engine_curve(tmp_path / "none.json"))


async def test_the_block_becomes_litellms_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    async def acompletion(**arguments: object) -> object:
        asked.append(arguments)
        raise RuntimeError

    fake = ModuleType("litellm")
    fake.__dict__.update(acompletion=acompletion)
    monkeypatch.setitem(sys.modules, "litellm", fake)
    table = build(tmp_path, {**AZURE, "provider": "azure"}, {"AZURE_KEY": "secret"})
    body = b'{"model": "auto", "messages": [{"role": "user", "content": "hi"}], "api_base": "https://evil.example"}'
    with pytest.raises(UpstreamUnavailable):
        await table.adapters["azure"].open(Call("chat.completions", "azure/mine", body, False, "r1"))
    (given,) = asked
    assert given["model"] == "azure/mine"
    assert given["messages"] == [{"role": "user", "content": "hi"}]
    assert (given["api_base"], given["api_version"], given["api_key"]) == ("https://my.example", "2025", "secret")
    assert table.facts["azure"].provider == "azure"


@pytest.mark.parametrize(
    ("settings", "tier"),
    [
        ({"vertex_project": "p", "extra_headers": {"X-Vertex-AI-LLM-Shared-Request-Type": "priority"}}, "priority"),
        ({"aws_region_name": "eu-west-1", "service_tier": "flex"}, "flex"),
        ({"extra_headers": {"x-team": "search"}}, None),
    ],
)
def test_a_block_may_ask_for_a_tier(tmp_path: Path, settings: Mapping[str, object], tier: str | None) -> None:
    assert build(tmp_path, {"litellm": settings}, {}).facts["azure"].asked_tier == tier


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({}, "give base_url, or litellm"),
        ({**AZURE, "base_url": "https://x/v1"}, "one of the two"),
        ({"litellm": {"api_key": "secret"}}, "api_key is not set here"),
        ({"litellm": {"messages": "x", "model": "y"}}, "messages, model"),
    ],
)
def test_a_block_that_cannot_be_meant(block: Mapping[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        BackendSettings.model_validate(block)
