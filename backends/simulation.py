"""Simulated answers of hosted models, for demonstrations without a provider key. The same call always gets the same.

Anything that displays the result must mark it as simulated.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from backends.formats.json_objects import NOT_JSON
from backends.protocol import Call
from backends.scripted import Outcome
from backends.usage import Usage

CHARACTERS_PER_TOKEN: Final = 4.0
_TEXT: Final = """
this answer is simulated so that the demonstration costs nothing and its words carry no meaning beyond their number
and their pace which follow the figures given for the model it stands for
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a simulated model behaves. The length of an answer is 0.5 to 1.5 times `mean_output_tokens`, by the request's
    hash."""

    time_to_first_token_seconds: float = 0.5
    decode_tokens_per_second: float = 80.0
    mean_output_tokens: int = 120
    tokens_per_piece: int = 4


def simulate(call: Call, pace: Pace) -> Outcome:
    """The outcome of one call, determined by its body and model. Usage is estimated; the output never exceeds the
    caller's limit."""
    seed = int.from_bytes(hashlib.sha256(call.upstream_model.encode() + call.body).digest()[:8], "big")
    input_tokens, limit = _estimate(call.body)
    wanted = max(1, round(pace.mean_output_tokens * (0.5 + seed % 1000 / 1000)))
    output_tokens = min(wanted, limit) if limit else wanted
    vocabulary = _TEXT.split()
    words = [vocabulary[(seed + number) % len(vocabulary)] + " " for number in range(output_tokens)]
    step = max(1, pace.tokens_per_piece)
    return Outcome(
        pieces=tuple("".join(words[start : start + step]) for start in range(0, output_tokens, step)),
        finish_reason="length" if output_tokens < wanted else "stop",
        usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens, is_estimated=True),
        first_piece_delay_seconds=pace.time_to_first_token_seconds,
        piece_delay_seconds=step / pace.decode_tokens_per_second,
    )


def _estimate(body: bytes) -> tuple[int, int | None]:
    """(estimated input tokens, the caller's limit on output tokens). An empty input counts as one token."""
    try:
        document = msgspec.json.decode(body)
    except NOT_JSON:
        return max(1, round(len(body) / CHARACTERS_PER_TOKEN)), None
    fields = cast(dict[str, object], document) if isinstance(document, dict) else {}
    characters = _characters(fields.get("messages")) + _characters(fields.get("prompt"))
    limits = [fields.get(name) for name in ("max_completion_tokens", "max_tokens")]
    limit = next((value for value in limits if isinstance(value, int) and value > 0), None)
    return max(1, round(characters / CHARACTERS_PER_TOKEN)), limit


def _characters(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(_characters(item) for item in cast(list[object], value))
    if isinstance(value, dict):
        fields = cast(dict[str, object], value)
        return _characters(fields.get("content")) + _characters(fields.get("text"))
    return 0
