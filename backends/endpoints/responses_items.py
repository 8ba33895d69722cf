"""The building blocks of a response in the Responses API: its head, and the items of its output. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

import msgspec

from backends.endpoints.responses_compaction import asks_compaction
from backends.endpoints.responses_tools import Tool, ToolKind, echo, input_of
from backends.formats.json_objects import Fields, part_of
from backends.formats.past_thinking import seal
from backends.usage import Usage

Status = Literal["in_progress", "completed", "incomplete"]
ItemKind = Literal["message", "reasoning", "call"]
PartKind = Literal["output_text", "refusal", "reasoning_text", "summary_text"]

ECHOED: Final[Fields] = {
    "background": False,
    "frequency_penalty": 0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "service_tier": "default",
    "temperature": 1,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
}
"""Request fields that a response repeats, with OpenAI's defaults: some clients' types require numbers, not null."""
INCOMPLETE: Final[Mapping[object, str]] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Why a response is incomplete, by the chat's finish reason; with any other it is complete."""
ENCRYPTED: Final = "reasoning.encrypted_content"
"""The value of `include` that requests encrypted reasoning, for clients that send it back instead of storing
responses."""
SUMMARIES: Final = ("auto", "concise", "detailed")
"""Values of `reasoning.summary` that request a summary."""
PREFIXES: Final[Mapping[ItemKind, str]] = {"message": "msg", "reasoning": "rs"}
CALL_PREFIXES: Final[Mapping[ToolKind, str]] = {"function": "fc", "custom": "ctc"}
CALL_TYPES: Final[Mapping[ToolKind, str]] = {"function": "function_call", "custom": "custom_tool_call"}


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What every version of one response repeats. `created_at` is Unix seconds; `asked` are the caller's own fields;
    `is_kept`: it is stored, so that later requests can refer to it, as this one did to `previous_response_id`."""

    response_id: str
    created_at: int
    asked: Fields
    previous_response_id: str | None = None
    is_kept: bool = False

    @property
    def seals_thoughts(self) -> bool:
        """Whether the caller keeps reasoning itself, and sends back `encrypted_content`."""
        include = self.asked.get("include")
        return isinstance(include, list) and ENCRYPTED in include

    @property
    def is_compaction(self) -> bool:
        """Whether it has one item, the compacted conversation, instead of an answer."""
        return asks_compaction(self.asked)

    @property
    def thought_kind(self) -> PartKind:
        """Where to put thoughts. Clients that request a summary read only that, and some fail on the other kind."""
        return "summary_text" if part_of(self.asked, "reasoning").get("summary") in SUMMARIES else "reasoning_text"

    def document(
        self,
        model: str,
        output: list[Fields],
        status: Status | Literal["failed"],
        usage: Usage | None,
        *,
        reason: str | None = None,
    ) -> Fields:
        """The response. `reason` says why it is incomplete."""
        tools = self.asked.get("tools")
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created_at,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": model,
            "output": output,
            "previous_response_id": self.previous_response_id,
            "store": self.is_kept,
            **{name: absent if (said := self.asked.get(name)) is None else said for name, absent in ECHOED.items()},
            **({"user": user} if (user := self.asked.get("user")) is not None else {}),
            "tools": [echo(tool) for tool in cast(list[object], tools)] if isinstance(tools, list) else [],
            "reasoning": {"effort": None, "summary": None, **part_of(self.asked, "reasoning")},
            "text": {"format": {"type": "text"}, **part_of(self.asked, "text")},
            "usage": None if usage is None else usage_wire(usage),
        }

    def finished(
        self, model: str, output: list[Fields], finish_reason: str | None, usage: Usage | None, *, at: int | None = None
    ) -> Fields:
        """The finished response; its status follows from the chat's finish reason. `at` is Unix seconds."""
        reason, status = INCOMPLETE.get(finish_reason), status_of(finish_reason)
        document = self.document(model, output, status, usage, reason=reason)
        return document | {"completed_at": at if status == "completed" else None}


def status_of(finish_reason: str | None) -> Literal["completed", "incomplete"]:
    """The status by the chat's finish reason."""
    return "incomplete" if finish_reason in INCOMPLETE else "completed"


def usage_wire(usage: Usage) -> Fields:
    """Our usage in the Responses API's format, whose types require every member."""
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
    """One part of an item's content under construction. `logprobs` are JSON without the brackets: decoded they would
    take six times the memory."""

    kind: PartKind
    pieces: list[str] = field(default_factory=list[str])
    logprobs: list[bytes] = field(default_factory=list[bytes])

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def all_logprobs(self) -> msgspec.Raw:
        return msgspec.Raw(b"[%b]" % b",".join(filter(None, self.logprobs)))

    def wire(self) -> Fields:
        if self.kind == "refusal":
            return {"type": self.kind, "refusal": self.text}
        if self.kind in ("reasoning_text", "summary_text"):
            return {"type": self.kind, "text": self.text}
        return {"type": self.kind, "text": self.text, "annotations": [], "logprobs": self.all_logprobs}


@dataclass(slots=True)
class Item:
    """One item of the output under construction. Calls have `tool` and `arguments`, other kinds `parts`.
    `is_sealed`: the thoughts are in `encrypted_content` too."""

    kind: ItemKind
    response_id: str
    index: int
    call_id: str = ""
    tool: Tool | None = None
    arguments: list[str] = field(default_factory=list[str])
    parts: list[Part] = field(default_factory=list[Part])
    is_sealed: bool = False

    @property
    def item_id(self) -> str:
        return f"{PREFIXES.get(self.kind) or CALL_PREFIXES[self.tool_kind]}_{self.response_id}_{self.index}"

    @property
    def tool_kind(self) -> ToolKind:
        return "function" if self.tool is None else self.tool.kind

    @property
    def thought(self) -> str:
        return "".join(part.text for part in self.parts)

    def said(self) -> Fields:
        """A call's input or arguments."""
        arguments = "".join(self.arguments)
        return {"input": input_of(arguments)} if self.tool_kind == "custom" else {"arguments": arguments}

    def wire(self, status: Status = "completed") -> Fields:
        head: Fields = {"type": self.kind, "id": self.item_id, "status": status}
        if self.tool is not None:
            place: Fields = {} if self.tool.namespace is None else {"namespace": self.tool.namespace}
            named: Fields = {"type": CALL_TYPES[self.tool.kind], "call_id": self.call_id, "name": self.tool.name}
            plain: Fields = {"encrypted_function_args": []} if self.tool.encrypts else {}
            return head | named | place | plain | self.said()
        content = [part.wire() for part in self.parts if part.kind != "summary_text"]
        if self.kind == "message":
            return head | {"role": "assistant", "content": content}
        sealed: Fields = {"encrypted_content": seal(self.thought)} if self.is_sealed else {}
        summary = [part.wire() for part in self.parts if part.kind == "summary_text"]
        return head | {"summary": summary, "content": content} | sealed


def logprobs_of(choice: Mapping[str, object]) -> bytes:
    """The log probabilities of a choice, as in `Part`; both formats write them the same."""
    found = part_of(choice, "logprobs").get("content")
    return msgspec.json.encode(found)[1:-1] if isinstance(found, list) else b""
