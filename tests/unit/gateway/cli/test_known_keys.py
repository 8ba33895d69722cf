"""Commands beside a gateway know the providers whose keys it has, and never the keys."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.doctor.store_checks import examine_stores
from gateway.cli.known_keys import DATABASE, ELSEWHERE, remember_key_names, require_its_database, with_known_keys
from gateway.composition.deployment import load_environment_settings
from gateway.config.home import Home
from gateway.errors import ConfigurationError, StateError
from tests.homes import new_home

BLOCK = "backends:\n  mine:\n    base_url: http://127.0.0.1:9/v1\n    api_key_env: MY_KEY\n"
HELD = {"MY_KEY": "sk-canary-1", "OPENAI_API_KEY": "sk-canary-2", "OPENAI_API_KEY_2": "sk-canary-3"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = new_home(tmp_path / "home")
    monkeypatch.setenv("BREAKEVEN_HOME", str(made.root))
    for name in HELD:
        monkeypatch.delenv(name, raising=False)
    config = made.config_file.read_text()
    assert "\nbackends: {}\n" in config
    made.config_file.write_text(config.replace("backends: {}\n", BLOCK))
    rules = made.rules_file.read_text()
    assert "{from: any, by: expected_cost}" in rules
    made.rules_file.write_text(rules.replace("{from: any, by: expected_cost}", "{from: [gpt-5.4-mini]}"))
    return made


def costs() -> str:
    return CliRunner().invoke(build("costs"), ["costs"], catch_exceptions=False).output


def test_the_books_are_read_where_no_key_is_set(home: Home) -> None:
    with pytest.raises(ConfigurationError, match="the environment has no MY_KEY"):
        costs()
    remember_key_names(home, load_environment_settings(home), HELD)
    assert " total " in costs()
    assert home.key_names_file.read_text().split() == sorted(HELD)


def test_what_is_set_here_counts_and_what_the_last_start_had_not_is_gone(home: Home) -> None:
    settings = load_environment_settings(home)
    remember_key_names(home, settings, HELD)
    here = {"MY_KEY": "sk-here", "OPENAI_API_KEY": " "}
    assert with_known_keys(home, here) == {**here, "OPENAI_API_KEY": ELSEWHERE, "OPENAI_API_KEY_2": ELSEWHERE}
    remember_key_names(home, settings, {"MY_KEY": "sk-canary-1"})
    assert with_known_keys(home, {}) == {"MY_KEY": ELSEWHERE}


def test_what_cannot_be_noted_keeps_nobody_from_serving(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.key_names_file.with_name(f"{home.key_names_file.name}.{os.getpid()}.part").mkdir()  # as good as a full disk
    remember_key_names(home, load_environment_settings(home), HELD)
    assert "know a provider only where its key is set" in caplog.text
    assert with_known_keys(home, {}) == {}


def test_no_other_database_is_made_where_the_variable_that_names_it_is_not_set(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only systemd's unit had the address, `breakeven keys create` made a key that no gateway knew."""
    monkeypatch.delenv(DATABASE, raising=False)
    settings = load_environment_settings(home)
    remember_key_names(home, settings, {**HELD, DATABASE: "postgresql://elsewhere/breakeven"})
    for arguments in (["costs"], ["keys", "create", "--name", "lost"], ["migrate"]):
        with pytest.raises(StateError, match=f"{DATABASE} is not set here"):
            CliRunner().invoke(build(arguments[0]), arguments, catch_exceptions=False)
    found = next(one for one in examine_stores(home, settings) if one.name == "database")
    assert (found.is_ok, f"{DATABASE} is not set here" in found.detail) == (False, True)
    assert not (home.root / "breakeven.db").exists()
    assert DATABASE not in with_known_keys(home, {})
    require_its_database(home, {DATABASE: "postgresql://elsewhere/breakeven"})
    remember_key_names(home, settings, HELD)
    assert " total " in costs()


def test_who_names_the_same_database_in_the_file_needs_no_variable_beside_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATABASE, raising=False)
    url = "postgresql://elsewhere/breakeven"
    config = home.config_file.read_text()
    home.config_file.write_text(f"{config}\ndatabase: {url}\n")
    there = {**HELD, DATABASE: url}
    remember_key_names(home, load_environment_settings(home, there), there)
    require_its_database(home, {})
    there[DATABASE] = "postgresql://moved/breakeven"
    remember_key_names(home, load_environment_settings(home, there), there)
    with pytest.raises(StateError, match=f"{DATABASE} is not set here"):
        require_its_database(home, {})
