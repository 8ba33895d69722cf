"""What a response of the Responses API is made of: its head, and the items of its output under construction. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from backends.json_objects import Fields, part_of
from backends.usage import Usage

Status = Literal["in_progress", "completed", "incomplete"]
ItemKind = Literal["message", "reasoning", "function_call"]
PartKind = Literal["output_text", "refusal", "reasoning_text"]

ECHOED: Final[Fields] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that a response repeats, as they are when they were not given."""
INCOMPLETE: Final[Mapping[object, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is not complete, by the chat's finish reason; with any other it is."""
PREFIXES: Final[Mapping[ItemKind, str]] = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every response of one request repeats. `created_at` is Unix seconds; `asked` the caller's own fields."""

    response_id: str
    created_at: int
    asked: Fields

    def document(
        self, model: str, output: list[Fields], status: Status, usage: Usage | None, *, reason: str | None = None
    ) -> Fields:
        """A whole response. `reason` says why it is incomplete."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": model,
            "output": output,
            "previous_response_id": None,
            "store": False,
            **{name: absent if (said := self.asked.get(name)) is None else said for name, absent in ECHOED.items()},
            "text": {"format": {"type": "text"}, **part_of(self.asked, "text")},
            "usage": None if usage is None else usage_wire(usage),
        }

    def finished(self, model: str, output: list[Fields], finish_reason: object, usage: Usage | None) -> Fields:
        """A whole response as the chat's finish reason leaves it."""
        reason = INCOMPLETE.get(finish_reason)
        return self.document(model, output, status_of(finish_reason), usage, reason=reason)


def status_of(finish_reason: object) -> Literal["completed", "incomplete"]:
    """A response's status, by the chat's finish reason."""
    return "incomplete" if finish_reason in INCOMPLETE else "completed"


def usage_wire(usage: Usage) -> Fields:
    """Our usage in the words of the Responses API, all of which its types demand."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": written},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


@dataclass(slots=True)
class Part:
    """One part of an item's content under construction. `logprobs` are those of a text's tokens."""

    kind: PartKind
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[object] = field(default_factory=list[object])

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def wire(self) -> Fields:
        if self.kind == "refusal":
            return {"type": self.kind, "refusal": self.text}
        if self.kind == "reasoning_text":
            return {"type": self.kind, "text": self.text}
        return {"type": self.kind, "text": self.text, "annotations": [], "logprobs": list(self.logprobs)}


@dataclass(slots=True)
class Item:
    """One item of the output under construction; `arguments` are a call's, `parts` what others hold."""

    kind: ItemKind
    response_id: str
    index: int
    call_id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    parts: list[Part] = field(default_factory=list[Part])

    @property
    def item_id(self) -> str:
        return f"{PREFIXES[self.kind]}_{self.response_id}_{self.index}"

    def wire(self, status: Status = "completed") -> Fields:
        head: Fields = {"type": self.kind, "id": self.item_id, "status": status}
        if self.kind == "function_call":
            return head | {"call_id": self.call_id, "name": self.name, "arguments": "".join(self.arguments)}
        content = [part.wire() for part in self.parts]
        return head | ({"summary": []} if self.kind == "reasoning" else {"role": "assistant"}) | {"content": content}


def logprobs_of(choice: Mapping[str, object]) -> list[object]:
    """Those of a choice's tokens; the two formats write them alike."""
    found = part_of(choice, "logprobs").get("content")
    return cast(list[object], found) if isinstance(found, list) else []
