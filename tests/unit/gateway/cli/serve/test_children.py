"""How `serve` starts the engine: the settings as its command line."""

from pathlib import Path

import pytest

from gateway.cli.serve.children import engine_supervisor, require_engine_package
from gateway.config.home import Home
from gateway.config.settings import Settings
from gateway.errors import StateError


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, []),
        (
            {"embedding_model": "/models/mini", "embedding_name": "mini"},
            ["--embedding-model", "/models/mini", "--embedding-name", "mini"],
        ),
    ],
)
def test_the_engine_is_told_its_models(tmp_path: Path, settings: dict[str, str], options: list[str]) -> None:
    engine = Settings.model_validate({"engine": {"model": "/models/m.gguf", "name": "m", **settings}})
    supervisor = engine_supervisor(Home(tmp_path), engine, "http://127.0.0.1:4711/v1")
    assert supervisor.patience is not None, "one that hangs is started again"
    command = list(supervisor.command)
    assert command[1:4] == ["-m", "local_engine", "serve"]
    assert command[4:6] == ["--model", "/models/m.gguf"]
    assert command[command.index("--served-name") + 1] == "m"
    assert command[command.index("--port") + 1] == "4711"
    assert [
        part for part in command if part in {"--embedding-model", "--embedding-name", *settings.values()}
    ] == options


def test_an_engine_that_could_never_start_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    file = tmp_path / "breakeven.yaml"
    require_engine_package(file, package="json")
    with pytest.raises(StateError, match=rf"(?s)no_such_package.*breakeven\[engine\].*is_enabled.*{file}"):
        require_engine_package(file, package="no_such_package")
