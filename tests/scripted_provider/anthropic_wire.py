"""Anthropic's Messages."""

import msgspec

from backends.scripted import Outcome
from backends.usage import Usage
from tests.scripted_provider.wire import Request, event

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}


class AnthropicWire:
    def opening(self, outcome: Outcome, request: Request) -> list[bytes]:
        message = _message(request) | {"content": [], "stop_reason": None}
        if outcome.usage is not None:
            message["usage"] = _usage(outcome.usage) | {"output_tokens": 1}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        return [
            event({"type": "message_start", "message": message}, "message_start"),
            event(block, "content_block_start"),
            event({"type": "ping"}, "ping"),
        ]

    def piece(self, outcome: Outcome, request: Request, text: str) -> bytes:
        delta = {"type": "text_delta", "text": text}
        return event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")

    def closing(self, outcome: Outcome, request: Request) -> list[bytes]:
        last: dict[str, object] = {
            "type": "message_delta",
            "delta": {"stop_reason": STOP_REASONS[outcome.finish_reason], "stop_sequence": None},
        }
        if outcome.usage is not None:
            last["usage"] = {"output_tokens": outcome.usage.output_tokens}
        return [
            event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
            event(last, "message_delta"),
            event({"type": "message_stop"}, "message_stop"),
        ]

    def answer(self, outcome: Outcome, request: Request) -> bytes:
        message = _message(request) | {
            "content": [{"type": "text", "text": "".join(outcome.pieces)}],
            "stop_reason": STOP_REASONS[outcome.finish_reason],
        }
        if outcome.usage is not None:
            message["usage"] = _usage(outcome.usage)
        return msgspec.json.encode(message)

    def error(self, status: int) -> bytes:
        kind = _KINDS.get(status, "api_error")
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": f"scripted {status}"}})

    def error_event(self) -> bytes:
        return event({"type": "error", "error": {"type": "api_error", "message": "scripted failure"}}, "error")


def _message(request: Request) -> dict[str, object]:
    return {"id": "msg_scripted", "type": "message", "role": "assistant", "model": request.model}


def _usage(usage: Usage) -> dict[str, object]:
    """Anthropic leaves cached tokens out of `input_tokens`."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.input_tokens - usage.cached_input_tokens - written,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output_tokens,
    }
