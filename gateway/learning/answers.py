"""What an answer to one chat or message says: its text and tool calls, plain or streamed, in OpenAI's or Anthropic's
format. Pure."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """`calls` are the tool calls: each one's name and its arguments as JSON."""

    text: str
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def shown(self) -> str:
        """As a judge sees it: the text, or with tool calls JSON of both."""
        if not self.calls:
            return self.text
        calls = [{"name": name, "arguments": arguments} for name, arguments in self.calls]
        return json.dumps({"text": self.text, "tool_calls": calls}, ensure_ascii=False)


def read_answer(payload: bytes) -> Answer | None:
    """None if there is no answer in it, but an error for instance."""
    text, found = payload.decode("utf-8", "replace"), _Pieces()
    try:
        if not text.lstrip().startswith(("data:", ":", "event:")):
            found.take_document(json.loads(text))
        else:
            for line in text.splitlines():
                data = line.removeprefix("data:").strip()
                if line.startswith("data:") and data != "[DONE]":
                    found.take_event(json.loads(data))
        calls = [(name, arguments) for name, arguments in found.calls.values()]
        return Answer("".join(found.texts), tuple(calls))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


class _Pieces:
    """An answer as it is read; calls by their place, as streams send them in pieces."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: dict[int, tuple[str, str]] = {}

    def take_document(self, document: Mapping[str, Any]) -> None:
        if document.get("type") != "message":
            self._take_message(document["choices"][0]["message"])
            return
        for place, block in enumerate(document["content"]):
            self._take_block(place, block)

    def take_event(self, event: Mapping[str, Any]) -> None:
        if event.get("type") in ("content_block_start", "content_block_delta"):
            self._take_block(event.get("index", 0), event.get("content_block") or event["delta"])
            return
        for choice in event.get("choices") or ():
            self._take_message(choice.get("delta") or {})

    def _take_message(self, message: Mapping[str, Any]) -> None:
        """A message of OpenAI's format, or a piece of one."""
        self.texts.append(message.get("content") or "")
        for place, call in enumerate(message.get("tool_calls") or ()):
            function = call.get("function") or {}
            self._take_call(call.get("index", place), function.get("name"), function.get("arguments"))
        if function := message.get("function_call"):
            self._take_call(-1, function.get("name"), function.get("arguments"))

    def _take_block(self, place: int, block: Mapping[str, Any]) -> None:
        """A content block of Anthropic's format, or a piece of one."""
        kind = block.get("type")
        if kind == "tool_use":
            given = block.get("input")
            self._take_call(place, block.get("name"), json.dumps(given) if given else "")
        elif kind == "input_json_delta":
            self._take_call(place, "", block.get("partial_json"))
        else:
            self.texts.append(block.get("text") or "")

    def _take_call(self, place: int, name: str | None, arguments: str | None) -> None:
        known = self.calls.get(place, ("", ""))
        self.calls[place] = (known[0] + (name or ""), known[1] + (arguments or ""))
