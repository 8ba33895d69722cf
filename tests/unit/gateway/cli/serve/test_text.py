"""What `breakeven serve` prints at its start."""

from pathlib import Path

import pytest
from rich.console import Console

from gateway.cli.serve.children import Addresses
from gateway.cli.serve.text import show_addresses, show_ready
from gateway.composition.deployment import load_deployment
from gateway.config.home import Home
from tests.homes import new_home

URL = "http://127.0.0.1:8080"


@pytest.mark.parametrize("has_engine", [True, False])
def test_a_gateway_that_no_model_stands_behind_says_so(tmp_path: Path, has_engine: bool) -> None:
    home, console = Home(tmp_path / "state"), Console(record=True, width=200)
    new_home(home.root)
    if not has_engine:
        text = home.config_file.read_text("utf-8")
        home.config_file.write_text(text.replace("is_enabled: true", "is_enabled: false"), "utf-8")

    show_ready(load_deployment(home, environ={}), Addresses(URL, engine=None, ui=None), None, console)

    assert ("No model can answer yet" in console.export_text()) is not has_engine


@pytest.mark.parametrize(
    ("ui", "is_ui_installed", "said"),
    [(f"{URL}/ui", True, f"Web UI    {URL}/ui "), (None, False, "Web UI    not installed: "), (None, True, None)],
)
def test_where_the_web_ui_is_or_why_there_is_none(ui: str | None, is_ui_installed: bool, said: str | None) -> None:
    console = Console(record=True, width=200)
    show_addresses(Addresses(URL, engine=None, ui=ui), None, console, is_ui_installed=is_ui_installed)
    shown = console.export_text()
    assert "Web UI" not in shown if said is None else said in shown
