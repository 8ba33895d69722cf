"""What a program can tell about two answers to one chat or message: valid JSON where requested, or empty.

Pure. Everything else is for a judge: a wrong score teaches the classifier worse than none. Two answers that say the
same are not evidence of quality: scores from agreement alone, with none where answers differ, make every model look
right.
"""

import json
from typing import Any

from backends.formats.answer_schema import JSON_KINDS
from gateway.learning.answers import read_answer


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
    """The text of an answer; None if there is none to compare (tool calls)."""
    found = read_answer(payload)
    return None if found is None or found.calls else found.text


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
