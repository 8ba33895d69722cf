"""What `breakeven doctor --ask` says of each backend, after its list of models."""

import json

import pytest

from gateway.cli.doctor import Finding, examine
from gateway.config.home import Home, create_home
from tests.unit.gateway.cli.doctor.examined import endpoint

CONFIGURED = """
engine: {is_enabled: false}
backends:
  mine: {base_url: "BASE", KEYS}
"""
RULES = """
version: 1
models:
  m: {backend: mine, upstream_model: big, context_window: 8192}
  same: {backend: mine, upstream_model: big, context_window: 2048}
rules: [{name: all, choose: {from: any}}]
"""


def told_of_backends(home: Home, base: str, keys: str = "api_key_env: MY_KEY") -> dict[str, Finding]:
    create_home(home)
    home.config_file.write_text(CONFIGURED.replace("BASE", base).replace("KEYS", keys))
    home.rules_file.write_text(RULES)
    checks = {one.name: one for one in examine(home, "http://127.0.0.1:1", asks=True)}
    assert checks["configuration"].is_ok, checks["configuration"].detail
    return {name: one for name, one in checks.items() if name.startswith("backend ")}


def test_a_backend_is_asked_only_when_told_to(home: Home) -> None:
    asked: list[str] = []

    def answer(path: str, key: str | None) -> tuple[int, str]:
        asked.append(path)
        return 200, '{"data": [{"id": "big"}]}'

    with endpoint(answer) as origin:
        assert told_of_backends(home, f"{origin}/v1", "provider: mine")["backend mine"].is_ok
        assert asked == ["/v1/models"]
        list(examine(home, "http://127.0.0.1:1"))
        assert asked == ["/v1/models"]


def test_each_key_is_tried_and_a_public_list_is_said_to_show_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(path: str, key: str | None) -> tuple[int, str]:
        return (401, "{}") if key == "Bearer old" else (200, '{"data": [{"id": "big"}]}')

    monkeypatch.setenv("GOOD", "new")
    monkeypatch.setenv("BAD", "old")
    with endpoint(answer) as origin:
        found = told_of_backends(home, f"{origin}/v1", "keys: [{env: GOOD}, {env: BAD}]")
    assert found["backend mine (GOOD)"].is_ok
    assert "the key is not tried" in found["backend mine (GOOD)"].detail
    assert "401: it rejects the key" in found["backend mine (BAD)"].detail
    assert "the key is in BAD" in found["backend mine (BAD)"].detail
    assert found["backend mine (BAD)"].fix is not None


@pytest.mark.parametrize(
    ("base", "says", "has_fix"),
    [
        ("{origin}", "answers 404: base_url is wrong (most end in /v1)", True),
        ("{origin}/page", "a web page or another service", True),
        ("{origin}/other", "its list of models (1) lacks big", False),
        ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/models: mine is unreachable", True),
    ],
)
def test_what_is_wrong_with_a_backend_is_said(
    home: Home, monkeypatch: pytest.MonkeyPatch, base: str, says: str, *, has_fix: bool
) -> None:
    pages = {"/page/models": "<html>", "/other/models": '[{"id": "models/small"}]'}
    monkeypatch.setenv("MY_KEY", "k")
    with endpoint(lambda path, _: (200, pages[path]) if path in pages else (404, "{}")) as origin:
        found = told_of_backends(home, base.format(origin=origin))["backend mine"]
    assert not found.is_ok
    assert says in found.detail
    assert (found.fix is not None) is has_fix


@pytest.mark.parametrize(("metrics", "is_told"), [((404, ""), True), ((200, "sglang:num_running_reqs 1"), False)])
def test_a_backend_that_counts_as_down_because_it_reports_no_load_is_said(
    home: Home, metrics: tuple[int, str], *, is_told: bool
) -> None:
    """As SGLang without `--enable-metrics` answers, and sglang-router 0.3.2."""
    with endpoint(lambda path, _: metrics if path == "/metrics" else (200, '{"data": [{"id": "big"}]}')) as origin:
        found = told_of_backends(home, f"{origin}/v1", "health_from: sglang, max_running: 8")["backend mine"]
    assert found.is_ok is not is_told
    assert (found.detail == "counts as down by its `health_from`: health answered 404") is is_told
    assert ("--enable-metrics" in (found.fix or "")) is is_told


@pytest.mark.parametrize(
    ("served", "says"),
    [
        (2048, "m has a context_window of 8,192 and is served with 2,048 tokens"),
        (8192, "answers, and has big"),
        (None, "answers, and has big"),  # as vLLM says of a LoRA
    ],
)
def test_a_window_wider_than_the_server_was_started_with_is_said(home: Home, served: int | None, says: str) -> None:
    """As vLLM 0.32.0 lists a model, in part."""
    listed = {"object": "list", "data": [{"id": "big", "object": "model", "owned_by": "vllm", "max_model_len": served}]}
    with endpoint(lambda path, _: (200, json.dumps(listed))) as origin:
        found = told_of_backends(home, f"{origin}/v1", "provider: mine")["backend mine"]
    assert found.detail.endswith(says)
    assert found.is_ok is (served != 2048)
    assert (found.fix is None) is found.is_ok
