"""`breakeven doctor` on what the settings leave off: notices and prompt caching."""

import asyncio

import pytest

from gateway.cli.doctor import Finding, examine
from gateway.cli.state import open_state
from gateway.config.home import Home
from gateway.storage.sql.notices import SqlNotices
from tests.homes import new_home
from tests.unit.gateway.cli.doctor.examined import found
from tests.webhook_receiver import webhook_receiver


def test_it_says_whether_a_webhook_is_told_of_budgets_and_calls_nobody(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_home(home.root)
    missing = found(home)["notices"]
    assert (missing.is_ok, missing.fix) == (False, None)
    with webhook_receiver() as receiver:
        monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", receiver.url)
        told = found(home)["notices"]
    assert told.is_ok
    assert "at 80 %, 95 %, 100 % of a budget" in told.detail
    assert "T0SECRET" not in told.detail
    assert receiver.documents == []


def test_it_says_who_pays_in_full_because_nobody_marks(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> Finding | None:
        found = examine(home, "http://127.0.0.1:9")
        return next((one for one in found if one.name == "prompt caching"), None)

    new_home(home.root)
    assert told() is None, "nothing here waits for marks"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk")
    off = told()
    assert off is not None
    assert (off.is_ok, off.fix) == (False, None)
    assert "`prompt_caching: {anthropic: auto}`" in off.detail
    home.config_file.write_text(home.config_file.read_text() + "\nprompt_caching: {anthropic: auto}\n")
    on = told()
    assert on is not None
    assert on.is_ok


def test_it_says_that_a_notice_waits_since_when_and_why(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new_home(home.root)
    monkeypatch.setenv("BREAKEVEN_NOTICES_WEBHOOK", "http://127.0.0.1:9/T0SECRET")

    async def fail() -> None:
        async with open_state() as state:
            notices = SqlNotices(state.database, now_us=lambda: 1_790_000_000_000_000)
            assert await notices.take_turn(await notices.state())
            await notices.note_failed("it answered 500")

    asyncio.run(fail())
    waiting = found(home)["notices"]
    assert not waiting.is_ok
    at = "2026-09-21 14:13 UTC"
    assert waiting.detail == f"one has waited since {at}, last tried {at}: it answered 500"
    assert waiting.fix is not None
