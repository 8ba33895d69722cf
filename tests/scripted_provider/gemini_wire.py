"""Gemini's generateContent."""

import msgspec

from backends.scripted import Outcome
from backends.usage import Usage
from tests.scripted_provider.wire import Request, event

FINISH_REASONS = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP"}
_STATUSES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}


class GeminiWire:
    def opening(self, outcome: Outcome, request: Request) -> list[bytes]:
        return []

    def piece(self, outcome: Outcome, request: Request, text: str) -> bytes:
        return event(_document(request, outcome, text))

    def closing(self, outcome: Outcome, request: Request) -> list[bytes]:
        return [event(_document(request, outcome, "", FINISH_REASONS[outcome.finish_reason]))]

    def answer(self, outcome: Outcome, request: Request) -> bytes:
        text, reason = "".join(outcome.pieces), FINISH_REASONS[outcome.finish_reason]
        return msgspec.json.encode(_document(request, outcome, text, reason))

    def error(self, status: int) -> bytes:
        return msgspec.json.encode({"error": _error(status)})

    def error_event(self) -> bytes:
        return event({"error": _error(500)})


def _error(status: int) -> dict[str, object]:
    return {"code": status, "message": f"scripted {status}", "status": _STATUSES.get(status, "INTERNAL")}


def _document(request: Request, outcome: Outcome, text: str, reason: str | None = None) -> dict[str, object]:
    candidate: dict[str, object] = {"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    document: dict[str, object] = {"candidates": [candidate], "modelVersion": request.model, "responseId": "scripted"}
    if outcome.usage is not None:
        document["usageMetadata"] = _usage(outcome.usage)
    return document


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
