"""What a program can tell about two answers to one chat or message: valid JSON where requested, or empty.

Pure. Everything else is for a judge: a wrong score teaches the classifier worse than none. Two answers that say the
same are not evidence of quality: scores from agreement alone, with none where answers differ, make every model look
right.
"""

import json
from collections.abc import Iterable
from typing import Any

from backends.formats.answer_schema import JSON_KINDS


def judge(request: bytes, shown: bytes, other: bytes) -> tuple[float, float] | None:
    """Scores of the two, from 0 to 1; None if no program can tell. Answers are passed as sent, streams included."""
    texts = (answer_text(shown), answer_text(other))
    if None in texts:
        return None
    first, second = (text or "" for text in texts)
    if not first.strip() or not second.strip():
        return (float(bool(first.strip())), float(bool(second.strip())))
    if wants_json(request):
        return (float(is_json(first)), float(is_json(second)))
    return None


def answer_text(payload: bytes) -> str | None:
    """The text of a plain or streamed answer in OpenAI's or Anthropic's format; None if there is none to compare (tool
    calls)."""
    text = payload.decode("utf-8", "replace")
    try:
        if not text.lstrip().startswith(("data:", ":", "event:")):
            document = json.loads(text)
            if document.get("type") == "message":
                return _joined(map(_block_text, document["content"]))
            return _message_text(document["choices"][0]["message"])
        parts: list[str | None] = []
        for line in text.splitlines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            parts += _event_texts(json.loads(data))
        return _joined(parts)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _event_texts(event: dict[str, Any]) -> list[str | None]:
    if event.get("type") in ("content_block_start", "content_block_delta"):
        return [_block_text(event.get("content_block") or event["delta"])]
    return [_message_text(choice.get("delta") or {}) for choice in event.get("choices") or ()]


def _block_text(block: dict[str, Any]) -> str | None:
    """Text of an Anthropic content block or delta."""
    return None if block.get("type") == "tool_use" else block.get("text") or ""


def _joined(parts: Iterable[str | None]) -> str | None:
    texts = list(parts)
    return None if None in texts else "".join(text or "" for text in texts)


def _message_text(message: dict[str, Any]) -> str | None:
    if message.get("tool_calls") or message.get("function_call"):
        return None
    return message.get("content") or ""


def wants_json(request: bytes) -> bool:
    body = json.loads(request)
    form: Any = body.get("response_format") or (body.get("output_config") or {}).get("format") or {}
    return form.get("type") in JSON_KINDS


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
