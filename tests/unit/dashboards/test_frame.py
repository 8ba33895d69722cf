"""What stands in a page's place when it cannot be built: a sentence, and the reason in the log."""

import logging

import pytest

from dashboards import frame
from dashboards.frame import View, guarded, no_requests, refusal
from dashboards.gateway_client import GatewayRefused
from tests.unit.dashboards.views import make_view


async def test_an_answer_that_a_page_cannot_read_is_a_sentence_and_its_reason_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(frame, "html", shown.append)
    caplog.set_level(logging.ERROR)

    async def build(view: View) -> None:
        raise KeyError("key_names")

    await guarded(build, None)  # pyright: ignore[reportArgumentType]  # such a page reads nothing of its view
    assert "This page could not be built" in shown[0]
    assert "another version" in shown[0]
    assert "key_names" in caplog.text


def test_an_empty_ledger_shows_a_request_to_copy() -> None:
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in no_requests(make_view())
    assert '<pre class="be-secret" tabindex="0">' in no_requests(make_view()), "the keyboard scrolls it"
    assert "<script" not in no_requests(make_view(url="http://<script>"))


def test_only_who_may_make_a_key_is_sent_to_where_one_is_made() -> None:
    assert 'href="keys"' in no_requests(make_view("keys.write"))
    assert 'href="keys"' not in no_requests(make_view("reports.read"))
    assert "one that an owner makes" in no_requests(make_view("reports.read"))


def test_over_the_fields_of_a_form_stands_the_way_on_for_whom_no_other_press_helps() -> None:
    revoked = refusal(make_view(), GatewayRefused(401, "The key 'ann' was revoked.", None))
    assert "was revoked." in revoked
    assert 'href="sign-in?next=%2Fui%2Fkeys%3Ffind%3Da"' in revoked
    for error in (GatewayRefused(400, "name: is empty.", None), ValueError("12,50 is no amount.")):
        assert "sign-in" not in refusal(make_view(), error)
