"""`breakeven from-litellm`: what it writes is what the start reads, whatever LiteLLM's file says."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gateway.cli import build
from gateway.composition.deployment import load_deployment
from gateway.config.home import Home
from gateway.errors import ConfigurationError, StateError
from gateway.from_litellm.files import files_of
from tests.unit.gateway.from_litellm.builders import drafted, entry

ROOT = Path(__file__).resolve().parents[4]
CONFIG = """\
model_list:
  - model_name: gpt-4o
    litellm_params: {model: azure/my-gpt-4o, api_base: "https://eu.openai.azure.com", api_key: os.environ/AZURE_API_KEY}
    model_info: {base_model: azure/gpt-4o}
  - {model_name: gpt-4o, litellm_params: {model: openai/gpt-5.4-mini, api_key: os.environ/OPENAI_API_KEY}}
  - model_name: own
    litellm_params: {model: hosted_vllm/Qwen/Qwen3-32B, api_base: "http://10.0.0.5:8000/v1", api_key: none}
router_settings: {fallbacks: [{own: [gpt-4o]}], num_retries: 2}
litellm_settings: {callbacks: [langfuse]}
"""


def run(tmp_path: Path, text: str, *more: str) -> str:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    given = ["from-litellm", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "out"), *more]
    result = CliRunner().invoke(build("from-litellm"), given)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_the_files_start_and_everything_else_is_said(tmp_path: Path) -> None:
    said = run(tmp_path, CONFIG)
    for part in ("AZURE_API_KEY: the key of azure (gpt-4o)", "128,000 tokens, of: own", "litellm_settings.callbacks"):
        assert part in said
    deployment = load_deployment(Home(tmp_path / "out"), environ={"AZURE_API_KEY": "a", "OPENAI_API_KEY": "o"})
    assert [rule.name for rule in deployment.rules.rules] == ["gpt-4o", "own", "default"]
    assert deployment.rules.rules[1].choose.from_ == ["own", "gpt-4o@azure-eu.openai.azure.com", "gpt-4o@openai"]
    assert deployment.settings.fallback.max_attempts == 5
    assert "# its context_window is a guess" in (tmp_path / "out" / "rules.yaml").read_text()
    assert not (tmp_path / "out" / "prices.yaml").exists()


def test_it_writes_over_nothing(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, CONFIG, "--json"))
    assert {Path(one).name for one in told["files"]} == {"breakeven.yaml", "rules.yaml"}
    assert told["variables"].keys() == {"AZURE_API_KEY", "OPENAI_API_KEY"}
    (tmp_path / "out" / "rules.yaml").unlink()  # as one that was killed on the way leaves it
    assert json.loads(run(tmp_path, CONFIG, "--json")) == told
    with (tmp_path / "out" / "breakeven.yaml").open("a") as file:
        file.write("# mine\n")
    with pytest.raises(StateError, match=r"breakeven\.yaml is there already"):
        run(tmp_path, CONFIG)


def test_another_file_is_named_in_the_refusal(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml.*has no `model_list`"):
        run(tmp_path, "version: 1\n")


def test_what_it_includes_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "models.yaml").write_text(
        "model_list: [{model_name: more, litellm_params: {model: openai/m, api_base: 'https://u:hush@h.example/v1'}}]\n"
    )
    said = run(tmp_path, CONFIG + "include: [parts/models.yaml]\n")
    rules = yaml.safe_load((tmp_path / "out" / "rules.yaml").read_text())
    assert rules["models"]["more"]["backend"] == "openai-h.example"
    assert "model_list[3] (more): the user and password in its address are not copied" in said
    assert not any("hush" in one.read_text() for one in (tmp_path / "out").iterdir())
    assert "hush" not in said
    (tmp_path / "parts" / "models.yaml").write_text("- a list\n")
    with pytest.raises(ConfigurationError, match=r"parts/models\.yaml.*no named sections"):
        run(tmp_path, CONFIG + "include: [parts/models.yaml]\n")


def test_the_page_shows_what_the_command_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.from_litellm.known_to_litellm", dict)  # it may be installed, or not
    page = (ROOT / "docs" / "from-litellm.md").read_text(encoding="utf-8")
    theirs, *ours = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    run(tmp_path, theirs)
    assert ours == [(tmp_path / "out" / name).read_text() for name in ("breakeven.yaml", "rules.yaml")]


names = st.sampled_from(["a", "gpt-4o", "gpt-5.4-mini", "default", "local", "anthropic/*", "claude 3", "x" * 70])
models = st.sampled_from(
    ["openai/gpt-5.4-mini", "gpt-4o", "azure/one", "bedrock/eu.anthropic.claude", "ollama/l", "hosted_vllm/Q/q",
     "groq/g", "openai/own", "gemini/gemini-3.8-flash", "anthropic/claude-sonnet-5-5", "together_ai/t", "strange"]
)  # fmt: skip
params = st.fixed_dictionaries(
    {},
    optional={
        "api_base": st.sampled_from(
            ["http://h:1/v1", "https://e.example/", "http://10.0.0.5:8000", "https://u:sk-written@h/v1?key=sk-written"]
        ),
        "api_key": st.sampled_from(["os.environ/KEY_A", "os.environ/KEY_B", "sk-written", "none"]),
        "rpm": st.integers(0, 9),
        "tpm": st.integers(-1, 9),
        "timeout": st.sampled_from([0, 1.5, "x"]),
        "order": st.integers(0, 2),
        "api_version": st.just("1"),
        "input_cost_per_token": st.sampled_from([0, 1e-7, "2e-7", float("nan")]),
        "output_cost_per_token": st.sampled_from([0, 3e-6]),
        "max_parallel_requests": st.integers(0, 3),
        "aws_region_name": st.just("us-east-1"),
    },
)
infos = st.fixed_dictionaries({}, optional={"mode": st.sampled_from(["chat", "embedding", "rerank"])})


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    model, more = draw(models), draw(params)
    if model.startswith("hosted_vllm/"):  # the one that is nowhere by itself
        more.setdefault("api_base", "http://v:1/v1")
    return entry(draw(names), model, draw(infos), **more)


fallbacks = st.lists(st.dictionaries(names, st.lists(names, max_size=3), max_size=2), max_size=3)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(entries(), min_size=1, max_size=6), fallbacks, st.dictionaries(names, names, max_size=2))
def test_whatever_it_says_the_result_is_valid(
    listed: list[dict[str, Any]], behind: list[dict[str, list[str]]], aliases: dict[str, str]
) -> None:
    made = drafted(*listed, router_settings={"fallbacks": behind, "model_group_alias": aliases})
    files = files_of(made, "config.yaml")
    assert "sk-written" not in "".join(files.values())
    with tempfile.TemporaryDirectory() as directory:
        for name, text in files.items():
            assert yaml.safe_load(text)
            (Path(directory) / name).write_text(text, encoding="utf-8")
        deployment = load_deployment(Home(Path(directory)), environ=dict.fromkeys(made.variables, "set"))
    offered = deployment.catalogue.models(deployment.rules).keys() | {
        name for rule in deployment.rules.rules if rule.when is not None for name in rule.when.model or ()
    }
    wanted = {one["model_name"] for one in listed if one["model_info"].get("mode") != "rerank"}
    served = wanted - {"local", "anthropic/*", "claude 3"} - _of_nobody(listed)
    assert served <= offered


def _of_nobody(listed: list[dict[str, Any]]) -> set[str]:
    """Names with an entry that does not say whose model it is; these may be missing from the result."""
    return {
        one["model_name"]
        for one in listed
        if one["litellm_params"]["model"] == "strange" and "api_base" not in one["litellm_params"]
    }
