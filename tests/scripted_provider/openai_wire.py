"""OpenAI's chat completions, completions and embeddings."""

import msgspec

from backends.formats.chat_chunks import usage_wire
from backends.formats.openai import error_body
from backends.scripted import Outcome
from tests.scripted_provider.wire import Request, event

_KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


class OpenAIWire:
    def opening(self, outcome: Outcome, request: Request) -> list[bytes]:
        if request.operation != "chat.completions":
            return []
        return [
            event(_chunk(request, {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}))
        ]

    def piece(self, outcome: Outcome, request: Request, text: str) -> bytes:
        said: dict[str, object] = (
            {"delta": {"content": text}} if request.operation == "chat.completions" else {"text": text}
        )
        return event(_chunk(request, {"index": 0, **said, "finish_reason": None}))

    def closing(self, outcome: Outcome, request: Request) -> list[bytes]:
        said: dict[str, object] = {"delta": {}} if request.operation == "chat.completions" else {"text": ""}
        events = [event(_chunk(request, {"index": 0, **said, "finish_reason": outcome.finish_reason}))]
        if request.includes_usage and outcome.usage is not None:
            events.append(event(_chunk(request, None) | {"usage": usage_wire(outcome.usage)}))
        return [*events, b"data: [DONE]\n\n"]

    def answer(self, outcome: Outcome, request: Request) -> bytes:
        text = "".join(outcome.pieces)
        usage: dict[str, object] = {"usage": usage_wire(outcome.usage)} if outcome.usage else {}
        if request.operation == "embeddings":
            vector = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 1.0]}
            return msgspec.json.encode({"object": "list", "model": request.model, "data": [vector], **usage})
        said: dict[str, object] = (
            {"message": {"role": "assistant", "content": text}}
            if request.operation == "chat.completions"
            else {"text": text}
        )
        choice: dict[str, object] = {"index": 0, **said, "finish_reason": outcome.finish_reason}
        document = _chunk(request, choice) | {"object": "chat.completion", **usage}
        return msgspec.json.encode(document)

    def error(self, status: int) -> bytes:
        return error_body(f"scripted {status}", kind=_KINDS.get(status, "server_error"), code=None)

    def error_event(self) -> bytes:
        return event({"error": {"message": "scripted failure", "type": "server_error", "code": 500}})


def _chunk(request: Request, choice: dict[str, object] | None) -> dict[str, object]:
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": request.model,
        "choices": [choice] if choice else [],
    }
