"""The `llm` command, as a person types it, but in this process: each of its own takes 2 s to import."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from llm.cli import cli
from running_gateway import TEXT, Gateway

MODELS = """\
- model_id: breakeven
  model_name: {model}
  api_base: {base_url}
  api_key_name: breakeven
  supports_schema: true
  supports_tools: true
- model_id: unknown
  model_name: no-such-model
  api_base: {base_url}
  api_key_name: breakeven
"""
WEATHER = "def weather(city: str) -> str:\n    'The weather of a city.'\n    return f'sunny in {city}'\n"


@pytest.fixture
def home(gateway: Gateway, tmp_path: Path) -> Path:
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(model=gateway.model, base_url=gateway.base_url))
    (tmp_path / "keys.json").write_text(json.dumps({"breakeven": gateway.key}))
    return tmp_path


def ask(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, env={"LLM_USER_PATH": str(home)})


@pytest.mark.parametrize("options", [[], ["--no-stream"]], ids=["stream", "chat"])
def test_chat_and_stream(home: Path, options: list[str]) -> None:
    assert ask(home, "-m", "breakeven", *options, "What is the capital of France?").stdout.strip() == TEXT


def test_tools(home: Path) -> None:
    done = ask(home, "-m", "breakeven", "--functions", WEATHER, "What is the weather in Paris?")
    assert done.stdout.strip() == "The tool said: sunny in Paris", done.stderr


def test_structured_output(home: Path) -> None:
    done = ask(home, "-m", "breakeven", "--schema", "name, population int", "A city.")
    assert json.loads(done.stdout) == {"name": "Paris", "population": 7}


@pytest.mark.parametrize(
    ("options", "says"),
    [(["-m", "breakeven", "--key", "bk-wrong"], "not known here"), (["-m", "unknown"], "does not exist")],
)
def test_errors(home: Path, options: list[str], says: str) -> None:
    done = ask(home, *options, "hello")
    assert done.exit_code != 0
    assert says in done.stderr
