"""What a program can say of two answers to one chat request: valid JSON where JSON was asked, empty, or the same.

Pure. Everything else is for a judge: a wrong score teaches the classifier worse than none.
"""

import json
from typing import Any

SHORT_CHARACTERS = 60
"""Two answers this short that say the same are both as good as each other; long ones never match by letter."""


def judge(request: bytes, shown: bytes, other: bytes) -> tuple[float, float] | None:
    """Scores of the two, from 0 to 1; None where no program can tell. Answers are as they were sent, streams too."""
    texts = (answer_text(shown), answer_text(other))
    if None in texts:
        return None
    first, second = (text or "" for text in texts)
    if not first.strip() or not second.strip():
        return (float(bool(first.strip())), float(bool(second.strip())))
    if wants_json(request):
        return (float(is_json(first)), float(is_json(second)))
    if max(len(first), len(second)) <= SHORT_CHARACTERS and normal(first) == normal(second):
        return (1.0, 1.0)
    return None


def answer_text(payload: bytes) -> str | None:
    """The text of a plain or streamed chat answer; None where it has none that could be compared (tool calls)."""
    text = payload.decode("utf-8", "replace")
    try:
        if not text.lstrip().startswith(("data:", ":")):
            return _message_text(json.loads(text)["choices"][0]["message"])
        parts: list[str] = []
        for line in text.splitlines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            for choice in json.loads(data).get("choices") or ():
                piece = _message_text(choice.get("delta") or {})
                if piece is None:
                    return None
                parts.append(piece)
        return "".join(parts)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None


def _message_text(message: dict[str, Any]) -> str | None:
    if message.get("tool_calls") or message.get("function_call"):
        return None
    return message.get("content") or ""


def wants_json(request: bytes) -> bool:
    form: Any = json.loads(request).get("response_format") or {}
    return form.get("type") in ("json_object", "json_schema")


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def normal(text: str) -> str:
    """Without case, space and punctuation at the ends."""
    return " ".join(text.lower().split()).strip(" .!\"'`*")
