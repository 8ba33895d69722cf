"""Packs what of an entry neither repeats nor is summed, its facts and decision, into one small column. Pure.

Lossless, since decisions are replayed from it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain

import msgspec
from msgspec.structs import astuple

from backends.usage import NO_UNITS, Units
from classifier.predictions import Predictions
from gateway.ledger.entry import NO_MEDIA, Entry, Facts, Media
from gateway.storage.rows.bounded import micros
from gateway.storage.rows.dimension import REMEMBERED

SHORT_SCALE = 10_000.0
MOST_SHORT = 2.0**31
Short = int | float
"""A number as stored by `short`: integer ten-thousandths, or the number itself if it has more decimals."""

Time = int | float
"""Integer microseconds; in rows of early versions seconds, as floats."""


class Detail(msgspec.Struct, frozen=True, array_like=True):
    """Fields are only ever appended. Model names are stored as indices into the candidates, followed by `more_names`:
    not into the predictions' models, which earlier versions do not have, nor do rows of who went back to one."""

    input_tokens: int
    max_output_tokens: int | None
    difficulty: Short | None
    uncertainty: Short | None
    quality: list[Short]
    output_tokens: list[Short]
    needs: tuple[str, ...]
    warm_tokens: list[int]
    backend_state: list[Short]
    draw: Short
    expected_cost: int | None
    predicted_quality: Short | None
    propensity: Short
    cost_bound: int | None
    more_names: tuple[str, ...] = ()
    attempt: tuple[int, Time, Time, int | None, int | None] | None = None
    exploration_cost: int = 0
    explored: dict[str, int] = {}
    allowed_loss: dict[str, Short] = {}
    escalates_to: tuple[str, ...] = ()
    repeated_tokens: int = 0
    media: tuple[int, ...] | None = None
    """Empty if there was none, as in most rows. None: written by an early version, which did not record it."""
    units: tuple[int, ...] = ()
    """The facts' units; empty if there were none."""
    charged: int | None = None
    longest_prompt_tokens: int = 0
    predicted: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """`shares` and `tenths` of `classifier.predictions.Predictions`."""


ENCODER = msgspec.msgpack.Encoder()
DECODER = msgspec.msgpack.Decoder(Detail)


def short(number: float) -> Short:
    """Takes three bytes instead of nine for numbers with up to four decimals, as the classifier's and most others."""
    if 0.0 <= number < MOST_SHORT:  # the fast path for nearly all, a dozen per row
        scaled = int(number * SHORT_SCALE + 0.5)
        return scaled if scaled / SHORT_SCALE == number else number
    if not -MOST_SHORT < number < 0.0:
        return float(number)
    scaled = round(number * SHORT_SCALE)
    return scaled if scaled / SHORT_SCALE == number else number


def long(stored: Short) -> float:
    """The exact number that was passed to `short`."""
    return stored / SHORT_SCALE if isinstance(stored, int) else stored


def seconds_of(stored: Time) -> float:
    return stored / 1e6 if isinstance(stored, int) else stored


def encode_detail(entry: Entry, *, is_plain: bool) -> bytes:
    """`is_plain`: the only attempt, if any, is described by the entry, and its times are stored here."""
    decision, facts = entry.intent.decision, entry.intent.decision.facts
    keyed, packed = (facts.quality, facts.output_tokens, facts.warm_tokens, facts.backend_state), facts.predictions
    more_names, place = _places(decision.candidates, tuple(chain.from_iterable(keyed)))
    one = entry.attempts[0] if is_plain and entry.attempts else None
    detail = Detail(  # by position: Python collects more than fifteen keywords in a dictionary first
        facts.input_tokens,
        facts.max_output_tokens,
        None if facts.difficulty is None else short(facts.difficulty),
        None if facts.uncertainty is None else short(facts.uncertainty),
        _by_place(facts.quality, place),
        _by_place(facts.output_tokens, place),
        facts.needs,
        [part for name, value in facts.warm_tokens.items() for part in (place[name], value)],
        [part for name, (free, wait) in facts.backend_state.items() for part in (place[name], free, short(wait))],
        short(facts.draw),
        decision.expected_cost_pico_usd,
        None if decision.predicted_quality is None else short(decision.predicted_quality),
        short(decision.propensity),
        entry.intent.cost_bound_pico_usd,
        more_names,
        one
        and (
            one.number,
            micros(one.started_after_seconds) or 0,
            micros(one.lasted_seconds) or 0,
            one.cost_pico_usd,
            one.http_status,
        ),
        decision.exploration_pico_usd,
        facts.explored_pico_usd,
        {name: short(loss) for name, loss in facts.allowed_loss.items()} if facts.allowed_loss else {},
        decision.escalates_to,
        facts.repeated_tokens,
        _media(entry.media),
        units=() if facts.units == NO_UNITS else astuple(facts.units),
        charged=entry.charged_pico_usd,
        longest_prompt_tokens=facts.longest_prompt_tokens,
        predicted=None if packed is None else (packed.shares, packed.tenths),
    )
    return ENCODER.encode(detail)


@lru_cache(REMEMBERED)
def _places(candidates: tuple[str, ...], mentioned: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, int]]:
    """The names that are not candidates, and the index of every name. Cached, since rows have the same few."""
    more = tuple(sorted(set(mentioned) - set(candidates)))
    return more, {name: number for number, name in reversed(list(enumerate((*candidates, *more))))}


def _by_place(numbers: Mapping[str, float], place: Mapping[str, int]) -> list[Short]:
    flat: list[Short] = []
    for name, number in numbers.items():
        flat.append(place[name])
        flat.append(short(number))
    return flat


def _media(media: Media | None) -> tuple[int, ...] | None:
    return None if media is None else () if media == NO_MEDIA else astuple(media)


def decode_detail(stored: bytes) -> Detail:
    return DECODER.decode(stored)


def facts_from(detail: Detail, candidates: tuple[str, ...], predicted: bytes | None) -> Facts:
    """`predicted` is the predictions' `models`."""
    names = (*candidates, *detail.more_names)
    states, warm = detail.backend_state, detail.warm_tokens
    return Facts(
        detail.input_tokens,
        detail.max_output_tokens,
        None if detail.difficulty is None else long(detail.difficulty),
        None if detail.uncertainty is None else long(detail.uncertainty),
        quality=_by_name(detail.quality, names),
        output_tokens=_by_name(detail.output_tokens, names),
        needs=detail.needs,
        warm_tokens={names[warm[i]]: warm[i + 1] for i in range(0, len(warm), 2)},
        backend_state={
            names[int(states[i])]: (int(states[i + 1]), long(states[i + 2])) for i in range(0, len(states), 3)
        },
        draw=long(detail.draw),
        explored_pico_usd=detail.explored,
        allowed_loss={name: long(loss) for name, loss in detail.allowed_loss.items()},
        repeated_tokens=detail.repeated_tokens,
        units=msgspec.convert(detail.units, Units) if detail.units else NO_UNITS,
        longest_prompt_tokens=detail.longest_prompt_tokens,
        predictions=None
        if predicted is None or detail.predicted is None
        else Predictions(predicted, *detail.predicted),
    )


def _by_name(flat: Sequence[Short], names: Sequence[str]) -> dict[str, float]:
    places = iter(flat)
    return {names[int(place)]: long(value) for place, value in zip(places, places, strict=True)}
