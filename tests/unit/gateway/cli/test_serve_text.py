"""What whoever starts the gateway reads last."""

from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.serve_children import Addresses
from gateway.cli.serve_text import show_ready
from gateway.composition.deployment import load_deployment
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home

URL = "http://127.0.0.1:8080"


@pytest.mark.parametrize("has_engine", [True, False])
def test_a_gateway_that_no_model_stands_behind_says_so(tmp_path: Path, has_engine: bool) -> None:
    home, console = Home(tmp_path / "state"), Console(record=True, width=200)
    create_home(home)
    write_first_files(home)
    if not has_engine:
        text = home.config_file.read_text("utf-8")
        home.config_file.write_text(text.replace("is_enabled: true", "is_enabled: false"), "utf-8")

    show_ready(load_deployment(home, environ={}), Addresses(URL, engine=None, ui=None), None, console)

    assert ("No model can answer yet" in console.export_text()) is not has_engine
