"""What is shown if a page cannot be built: a sentence, with the reason in the log."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from dashboards import frame
from dashboards.frame import View, guarded, no_requests, refusal
from dashboards.gateway_client import GatewayClient, GatewayRefused
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
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in no_requests(make_view(), None)
    assert '<pre class="be-secret">' in no_requests(make_view(), None), "the keyboard scrolls it"
    assert "<script" not in no_requests(make_view(url="http://<script>"), None)


def test_a_time_without_requests_in_a_ledger_that_has_some_says_when_it_begins() -> None:
    """On the first of a month, users with thousands of requests used to be told how to send a first one."""
    shown = no_requests(make_view(), "2026-10-27T17:00:00Z")
    assert "begin on 27 Oct 2026 17:00 UTC" in shown
    assert "curl" not in shown


def test_only_who_may_make_a_key_is_sent_to_where_one_is_made() -> None:
    assert 'href="keys"' in no_requests(make_view("keys.write"), None)
    assert 'href="keys"' not in no_requests(make_view("reports.read"), None)
    assert "with one made by an owner" in no_requests(make_view("reports.read"), None)


def test_over_the_fields_of_a_form_stands_the_way_on_for_whom_no_other_press_helps() -> None:
    revoked = refusal(make_view(), GatewayRefused(401, "The key 'ann' was revoked.", None))
    assert "was revoked." in revoked
    assert 'href="sign-in?next=%2Fui%2Fkeys%3Ffind%3Da"' in revoked
    for error in (GatewayRefused(400, "name: is empty.", None), ValueError("12,50 is no amount.")):
        assert "sign-in" not in refusal(make_view(), error)


class Page:
    """The part of NiceGUI that a page waiting for its gateway needs; the test fires the timer."""

    def __init__(self) -> None:
        self.reloads = 0
        self.look: Callable[[], Awaitable[None]] | None = None
        self.navigate = self

    def timer(self, seconds: float, look: Callable[[], Awaitable[None]], *, once: bool = False) -> "Page":
        del seconds, once
        self.look = look
        return self

    def deactivate(self) -> None:
        self.look = None

    def reload(self) -> None:
        self.reloads += 1


@pytest.mark.parametrize(
    ("failures", "looks", "reloads"),
    [
        ([httpx.ConnectError("refused")], 1, 1),  # it was back before the first check
        ([httpx.ReadError("reset"), httpx.ConnectError("refused"), httpx.ConnectError("refused")], 3, 1),
        ([httpx.ReadTimeout("slow")], 1, 0),
        ([httpx.ReadTimeout("slow"), httpx.ConnectError("refused")], 2, 1),
    ],
)
async def test_a_page_is_loaded_again_once_a_gateway_that_was_away_is_back(
    monkeypatch: pytest.MonkeyPatch, failures: list[httpx.HTTPError], looks: int, reloads: int
) -> None:
    left = list(failures)

    def answer(asked: httpx.Request) -> httpx.Response:
        if left:
            raise left.pop(0)
        return httpx.Response(200, json={})

    page, shown = Page(), list[str]()
    monkeypatch.setattr(frame, "ui", page)
    monkeypatch.setattr(frame, "html", shown.append)
    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(answer))
    view = replace(make_view(), gateway=GatewayClient(http, "bk-ui"))

    async def build(view: View) -> None:
        await view.gateway.get("/admin/v1/keys")

    await guarded(build, view)
    assert "The gateway is not answering" in shown[0]
    for _ in range(looks):
        assert page.look is not None
        await page.look()
    assert page.look is None, "it looks no more"
    assert page.reloads == reloads


async def test_what_is_not_there_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[str]()
    monkeypatch.setattr(frame, "html", shown.append)

    async def build(view: View) -> None:
        raise GatewayRefused(404, "There is no request 'nope'.", None)

    await guarded(build, make_view())
    assert "Nothing to show" in shown[0]
    assert "There is no request &#x27;nope&#x27;." in shown[0]


async def test_a_page_whose_database_is_down_is_loaded_anew_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    page, shown = Page(), list[str]()
    monkeypatch.setattr(frame, "ui", page)
    monkeypatch.setattr(frame, "html", shown.append)

    async def build(view: View) -> None:
        raise GatewayRefused(503, "The database does not answer.", None)

    await guarded(build, make_view())
    assert "The gateway cannot answer now" in shown[0]
    assert "The database does not answer. This page reloads every 10 seconds until it can." in shown[0]
    assert page.look == page.reload
