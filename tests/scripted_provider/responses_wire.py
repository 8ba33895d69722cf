"""OpenAI's Responses API: one message, preceded by encrypted reasoning."""

from typing import Final

import msgspec

from backends.endpoints.responses_items import usage_wire
from backends.scripted import Outcome
from tests.scripted_provider.openai_wire import OpenAIWire
from tests.scripted_provider.wire import Request, event

THOUGHT: Final[dict[str, object]] = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [],
    "encrypted_content": "gAAA-scripted",
}


class ResponsesWire(OpenAIWire):
    """An outcome whose `finish_reason` is `tool_calls` calls the function `look_up` with its text as arguments."""

    def opening(self, outcome: Outcome, request: Request) -> list[bytes]:
        started = _response(request, outcome, "in_progress", []) | {"usage": None}
        return [
            _event("response.created", response=started),
            _event("response.output_item.added", output_index=0, item=THOUGHT | {"encrypted_content": ""}),
            _event("response.output_item.done", output_index=0, item=THOUGHT),
            _event("response.output_item.added", output_index=1, item=_said(outcome, "")),
        ]

    def piece(self, outcome: Outcome, request: Request, text: str) -> bytes:
        calls = outcome.finish_reason == "tool_calls"
        kind = "response.function_call_arguments.delta" if calls else "response.output_text.delta"
        return _event(kind, output_index=1, item_id="item_1", content_index=0, delta=text, logprobs=[])

    def closing(self, outcome: Outcome, request: Request) -> list[bytes]:
        item = _said(outcome, "".join(outcome.pieces))
        response = _whole(request, outcome, item)
        return [
            _event("response.output_item.done", output_index=1, item=item),
            _event(f"response.{response['status']}", response=response),
        ]

    def answer(self, outcome: Outcome, request: Request) -> bytes:
        return msgspec.json.encode(_whole(request, outcome, _said(outcome, "".join(outcome.pieces))))

    def error_event(self) -> bytes:
        return _event("error", code="server_error", message="scripted failure", param=None)


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, "sequence_number": 0, **fields}, kind)


def _said(outcome: Outcome, text: str) -> dict[str, object]:
    if outcome.finish_reason == "tool_calls":
        return {"id": "item_1", "type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": text}
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
    return {"id": "item_1", "type": "message", "role": "assistant", "status": "completed", "content": content}


def _whole(request: Request, outcome: Outcome, item: dict[str, object]) -> dict[str, object]:
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    reason = reasons.get(outcome.finish_reason or "")
    status = "incomplete" if reason else "completed"
    return _response(request, outcome, status, [THOUGHT, item]) | {
        "incomplete_details": {"reason": reason} if reason else None
    }


def _response(request: Request, outcome: Outcome, status: str, output: list[dict[str, object]]) -> dict[str, object]:
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "model": request.model,
        "error": None,
        "status": status,
        "output": output,
        "usage": None if outcome.usage is None else usage_wire(outcome.usage),
        "store": request.fields.get("store") is not False,
    }
