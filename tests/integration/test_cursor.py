"""Cursor's agent asks with a request of the Responses API and reads the answer as a chat's."""

import json

import httpx
import pytest

from gateway.api.other_addresses import OtherAddresses
from tests.integration.service import Service
from tests.live_server import serving
from tests.rig import KEY

pytestmark = pytest.mark.integration
ASKED = {
    "model": "auto",
    "messages": [],
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "tools": [{"type": "custom", "name": "ApplyPatch", "format": {"type": "text"}}],
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
}


async def test_cursors_agent_is_answered_as_a_chat(service: Service) -> None:
    async with (
        serving(OtherAddresses(service.app)) as url,
        httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as client,
    ):
        answer = await client.post(f"{url}/cursor/chat/completions", json=ASKED)
        plain = await client.post(f"{url}/v1/chat/completions", json=ASKED)
    assert answer.status_code == 200, answer.text
    *events, end = [line[6:] for line in answer.text.splitlines() if line]
    assert end == "[DONE]"
    assert {json.loads(event)["object"] for event in events} == {"chat.completion.chunk"}
    assert json.loads(events[-1])["usage"]
    assert service.rig.entry.intent.operation == "chat.completions"
    assert (plain.status_code, plain.json()["error"]["param"]) == (400, "messages")
