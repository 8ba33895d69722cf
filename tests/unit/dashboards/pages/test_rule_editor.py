"""What the rules editor says when the gateway refuses."""

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
