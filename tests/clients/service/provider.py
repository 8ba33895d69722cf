"""An OpenAI-compatible provider over HTTP: chat, completions, embeddings, and what media.py has.

What it says is answering.py's affair.
"""

import asyncio
import base64
import struct
from typing import cast

import msgspec
from aiohttp import web

from tests.clients.service.answering import TEXT, Json, Said, ToolCall, answer
from tests.clients.service.media import Media

VECTOR = (0.25, -0.5, 1.0)
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 8,
    "total_tokens": 28,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 0},
}


class Provider:
    """A stream waits before its first word, and before each other one."""

    def __init__(self, *, first_word_seconds: float = 0.0, word_seconds: float = 0.0) -> None:
        self._first_word_seconds = first_word_seconds
        self._word_seconds = word_seconds

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/embeddings", self._embed)
        Media().add_to(app)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"object": "list", "data": []})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._received(request)
        try:
            said = answer(body)
        except (KeyError, TypeError, AttributeError):
            return web.json_response({"error": _error("what was sent is no chat", "invalid_request_error")}, status=400)
        if said.status != 200:
            return web.json_response({"error": _error("refused as asked", "server_error")}, status=said.status)
        if body.get("stream") is True:
            return await self._stream(request, body, said)
        message: Json = {"role": "assistant", "content": said.text or None}
        if said.tool_call:
            message["tool_calls"] = [_call(said.tool_call)]
        choice: Json = {"index": 0, "message": message, "finish_reason": said.finish_reason, "logprobs": None}
        return web.json_response(_document("chat.completion", body, [choice]) | {"usage": USAGE})

    async def _complete(self, request: web.Request) -> web.Response:
        body = await self._received(request)
        choice: Json = {"index": 0, "text": TEXT, "finish_reason": "stop", "logprobs": None}
        return web.json_response(_document("text_completion", body, [choice]) | {"usage": USAGE})

    async def _embed(self, request: web.Request) -> web.Response:
        body = await self._received(request)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        packed = base64.b64encode(struct.pack(f"<{len(VECTOR)}f", *VECTOR)).decode()
        vector = packed if body.get("encoding_format") == "base64" else list(VECTOR)
        rows = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place in range(len(cast(list[object], texts)))
        ]
        usage = {"prompt_tokens": 4, "total_tokens": 4}
        return web.json_response({"object": "list", "model": body["model"], "data": rows, "usage": usage})

    async def _stream(self, request: web.Request, body: Json, said: Said) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for place, delta in enumerate(({"role": "assistant", "content": ""}, *_deltas(said))):
            if place:
                await asyncio.sleep(self._first_word_seconds if place == 1 else self._word_seconds)
            choice: Json = {"index": 0, "delta": delta, "finish_reason": None}
            await _event(response, _document("chat.completion.chunk", body, [choice]))
        last: Json = {"index": 0, "delta": {}, "finish_reason": said.finish_reason}
        await _event(response, _document("chat.completion.chunk", body, [last]))
        options = cast(Json, body.get("stream_options") or {})
        if options.get("include_usage") is True:
            await _event(response, _document("chat.completion.chunk", body, []) | {"usage": USAGE})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _received(self, request: web.Request) -> Json:
        return msgspec.json.decode(await request.read(), type=Json)


def _error(message: str, kind: str) -> Json:
    return {"message": message, "type": kind, "param": None, "code": None}


def _deltas(said: Said) -> list[Json]:
    if said.tool_call is None:
        return [{"content": word} for word in said.text.replace(" ", " \0").split("\0")]
    half = len(said.tool_call.arguments) // 2
    first = _call(ToolCall(said.tool_call.name, "")) | {"index": 0}
    pieces = (said.tool_call.arguments[:half], said.tool_call.arguments[half:])
    return [
        {"tool_calls": [first]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces),
    ]


def _call(call: ToolCall) -> Json:
    return {"id": "call_1", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _document(kind: str, body: Json, choices: list[Json]) -> Json:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": body["model"], "choices": choices}


async def _event(response: web.StreamResponse, document: Json) -> None:
    await response.write(b"data: " + msgspec.json.encode(document) + b"\n\n")
