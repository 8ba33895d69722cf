"""The provider's other endpoints: it draws one pixel, says one sound, hears one sentence, flags nothing, and ranks
documents as Cohere does, the longest first."""

import base64
import math
from typing import cast

import msgspec
from aiohttp import web

from tests.clients.service.answering import Json

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = b"ID3\x04" + bytes(range(256)) * 64
HEARD = "The quick brown fox."
TOKENS: Json = {"input_tokens": 12, "output_tokens": 1056, "total_tokens": 1068}
BYTES_PER_SECOND = 32_000
"""Of the recordings that it is sent."""


class Media:
    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/v1/images/generations", self._draw)
        app.router.add_post("/v1/images/edits", self._edit)
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_post("/v1/audio/transcriptions", self._listen)
        app.router.add_post("/v1/audio/translations", self._listen)
        app.router.add_post("/v1/moderations", self._judge)
        app.router.add_post("/v2/rerank", self._rank)

    async def _draw(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read(), type=Json)
        drawn: Json = {"b64_json": PIXEL}
        if body.get("stream") is not True:
            count = int(str(body.get("n") or 1))
            return web.json_response({"created": 1, "data": [drawn] * count, "usage": TOKENS})
        partial: Json = {"type": "image_generation.partial_image", "partial_image_index": 0, **drawn}
        whole: Json = {"type": "image_generation.completed", "usage": TOKENS, **drawn}
        return await _events(request, partial, whole)

    async def _edit(self, request: web.Request) -> web.Response:
        form = await request.post()
        if "image" not in form and "image[]" not in form:
            return _refusal("image is missing")
        return web.json_response({"created": 1, "data": [{"b64_json": PIXEL}], "usage": TOKENS})

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read(), type=Json)
        if body.get("stream_format") != "sse":
            return web.Response(body=SOUND, content_type="audio/mpeg")
        halves = (SOUND[: len(SOUND) // 2], SOUND[len(SOUND) // 2 :])
        deltas: list[Json] = [
            {"type": "speech.audio.delta", "audio": base64.b64encode(half).decode()} for half in halves
        ]
        return await _events(request, *deltas, {"type": "speech.audio.done", "usage": TOKENS})

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form.get("file")
        if not isinstance(file, web.FileField):
            return _refusal("file is missing")
        seconds = math.ceil(len(file.file.read()) / BYTES_PER_SECOND)
        usage: Json = {"type": "duration", "seconds": seconds}
        if form.get("stream") == "true":
            done: Json = {"type": "transcript.text.done", "text": HEARD, "usage": usage}
            return await _events(request, {"type": "transcript.text.delta", "delta": HEARD}, done)
        if form.get("response_format") == "verbose_json":
            return web.json_response({"text": HEARD, "duration": seconds, "language": "english", "segments": []})
        return web.json_response({"text": HEARD, "usage": usage})

    async def _judge(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=Json)
        count = len(body["input"]) if isinstance(body["input"], list) else 1
        result = {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.01}}
        return web.json_response({"id": "modr-1", "model": body["model"], "results": [result] * count})

    async def _rank(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=Json)
        documents = cast(list[object], body["documents"])
        texts = [one for one in documents if isinstance(one, str)]
        if len(texts) != len(documents) or "return_documents" in body:
            return _refusal("documents are texts, and none is sent back")
        ranked = sorted(range(len(texts)), key=lambda place: len(texts[place]), reverse=True)
        count = body.get("top_n")
        results = [{"index": one, "relevance_score": 1 / (place + 1)} for place, one in enumerate(ranked)]
        units = math.ceil(len(texts) / 100)
        meta: Json = {"api_version": {"version": "2"}, "billed_units": {"search_units": units}}
        return web.json_response(
            {"id": "r-1", "results": results[: count if isinstance(count, int) else None], "meta": meta}
        )


def _refusal(message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=400)


async def _events(request: web.Request, *documents: Json) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for document in documents:
        await response.write(b"data: " + msgspec.json.encode(document) + b"\n\n")
    return response
