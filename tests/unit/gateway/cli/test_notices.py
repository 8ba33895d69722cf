"""`breakeven notices test`: sends one document, marked as a test, or says what is missing."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.config.home import Home
from gateway.errors import ConfigurationError, NoticeNotTaken
from gateway.notices import webhook
from tests.homes import new_home
from tests.webhook_receiver import webhook_receiver


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = new_home(tmp_path / "home")
    monkeypatch.setenv("BREAKEVEN_HOME", str(home.root))
    monkeypatch.delenv("BREAKEVEN_NOTICES_WEBHOOK", raising=False)
    return home


def run() -> str:
    return CliRunner().invoke(build("notices"), ["notices", "test"], catch_exceptions=False).output


def test_it_sends_one_that_says_that_it_is_a_test(home: Home) -> None:
    with webhook_receiver() as receiver, home.config_file.open("a") as file:
        file.write(f"\nnotices: {{webhook: '{receiver.url}', at: [0.9]}}\n")
        file.write("sign_in: {oidc: {issuer: 'https://id.example', client_id: x, client_secret_env: X,\n")
        file.write("  public_url: 'https://ui.example/'}}\n")
        file.flush()
        said = run()
    assert said == "The webhook accepted the test notice.\n"
    (sent,) = receiver.documents
    assert sent["is_test"] is True
    assert (sent["spent_usd"], sent["reached_share"]) == ("900.000000000000", 0.9)
    assert sent["page"] == "https://ui.example/ui/budgets"


def test_without_a_webhook_it_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"notices: names no webhook: .* BREAKEVEN_NOTICES_WEBHOOK"):
        run()


def test_a_refusal_is_told_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WAITS_SECONDS", ())
    with webhook_receiver([404]) as receiver:
        monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", receiver.url)
        with pytest.raises(NoticeNotTaken, match="it answered 404") as told:
            run()
    assert "T0SECRET" not in str(told.value)
