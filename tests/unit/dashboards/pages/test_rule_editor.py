"""What the rules editor says when the gateway refuses, and what can be pressed meanwhile."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import httpx

from dashboards.gateway_client import GatewayClient
from dashboards.pages.rule_editor import Editor
from tests.unit.dashboards.views import make_view


async def test_an_editor_whose_key_was_revoked_leads_to_the_sign_in() -> None:
    """The edit is kept and comes back; without a link nobody got there but by typing the address."""
    refused = httpx.Response(401, json={"error": {"message": "The key 'ann' was revoked.", "code": "revoked_api_key"}})
    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(lambda _: refused))
    said = list[str]()
    element = cast("Any", SimpleNamespace(value="version: 1", set_content=said.append))
    editor = Editor(make_view(gateway=GatewayClient(http, "bk-1")), "", None, "", element, element, element, element)
    await editor.attempt("check")
    assert "The key &#x27;ann&#x27; was revoked." in said[0]
    assert "Sign in with another key" in said[0]


async def test_a_check_after_typing_lets_nobody_press_save_again_while_it_is_being_saved() -> None:
    answers = [asyncio.Event(), asyncio.Event()]
    waiting = iter(answers)

    async def answer(_: httpx.Request) -> httpx.Response:
        await next(waiting).wait()
        return httpx.Response(400, json={"error": {"message": "no", "code": "no"}})

    http = httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(answer))
    element = cast("Any", SimpleNamespace(value="version: 1", set_content=list[str]().append))
    pressable = [True]
    button = cast(
        "Any", SimpleNamespace(enable=lambda: pressable.append(True), disable=lambda: pressable.append(False))
    )
    editor = Editor(make_view(gateway=GatewayClient(http, "bk-1")), "", None, "", element, element, element, element)
    editor.buttons = [button]
    checking = asyncio.create_task(editor.attempt("check", is_asked=False))
    await asyncio.sleep(0)
    saving = asyncio.create_task(editor.attempt("save"))
    await asyncio.sleep(0)
    answers[0].set()
    await checking
    assert pressable == [True, False]
    answers[1].set()
    await saving
    assert pressable == [True, False, True]
