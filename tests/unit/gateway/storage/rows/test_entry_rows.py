"""Any entry survives the round trip to rows; repeated values are interned, and absurd ones clamped."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifier.predictions import Places, Predictions
from gateway.ledger.entry import Attempt, Cost, Entry, Media
from gateway.storage.rows.dimension import Circumstance, Dimension
from gateway.storage.rows.entry_from_row import entry_from
from gateway.storage.rows.entry_rows import ROW, entry_rows
from gateway.storage.tables.books import circumstances, dimensions
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
money = st.integers(-(10**16), 10**16)
durations = st.integers(0, 10**10).map(lambda us: us / 1e6)


def predicted(models: list[str]) -> Predictions:
    places = {name: number for number, name in enumerate(models)}
    return Predictions(Places(places, dict.fromkeys(models, 0)).packed, tuple(range(len(models))), (2**40,))


facts = st.builds(
    make_facts,
    difficulty=st.none() | numbers,
    quality=st.dictionaries(names, numbers, max_size=4),
    output_tokens=st.dictionaries(names, numbers, max_size=4),
    warm_tokens=st.dictionaries(names, st.integers(0, 2**40), max_size=3),
    backend_state=st.dictionaries(names, st.tuples(st.integers(0, 10**6), numbers), max_size=3),
    needs=st.lists(names, max_size=2).map(tuple),
    explored_pico_usd=st.dictionaries(names, st.integers(0, 10**16), max_size=2),
    allowed_loss=st.dictionaries(names, numbers, max_size=2),
    repeated_tokens=st.integers(0, 2**40),
    predictions=st.none() | st.lists(names, max_size=4, unique=True).map(predicted),
)
decisions = st.builds(
    make_decision,
    facts=facts,
    candidates=st.lists(names, max_size=4, unique=True).map(tuple),
    model=names,
    expected_cost_pico_usd=st.none() | money,
    exploration_pico_usd=st.integers(0, 10**16),
    escalates_to=st.lists(names, max_size=2).map(tuple),
)
intents = st.builds(
    make_intent,
    decision=decisions,
    team=st.none() | names,
    tags=st.lists(names, max_size=3).map(tuple),
    is_simulated=st.booleans(),
    allowed_models=st.none() | st.lists(names, max_size=3).map(tuple),
)
attempts = st.builds(
    Attempt,
    number=st.integers(1, 9),
    model=st.just("mid-hosted") | names,
    backend=st.just("openai") | names,
    outcome=st.just("answered") | names,
    started_after_seconds=durations,
    lasted_seconds=durations,
    cost_pico_usd=st.none() | money,
    http_status=st.none() | st.integers(100, 599),
)
entries = st.builds(
    make_entry,
    intent=intents,
    cost=st.none() | st.builds(Cost, money, money, money, money, money, money, money),
    cost_lower_pico_usd=st.none() | money,
    cost_upper_pico_usd=st.none() | money,
    attempts=st.lists(attempts, max_size=3, unique_by=lambda one: one.number).map(tuple),
    total_seconds=durations,
    queue_seconds=st.none() | durations,
    decode_tokens_per_second=st.none() | numbers,
    finish_reason=st.none() | names,
    is_usage_estimated=st.booleans(),
    is_simulated=st.booleans(),
    web_searches=st.integers(0, 10**9),
    file_searches=st.integers(0, 10**9),
    other_tool_calls=st.integers(0, 10**9),
    media=st.none() | st.builds(Media, *[st.integers(0, 10**9)] * 7),
    charged_pico_usd=st.none() | st.integers(0, 10**16),
)


def joined(entry: Entry) -> tuple[dict[str, Any], Sequence[dict[str, Any]]]:
    rows = entry_rows(entry)
    row = dict(zip(ROW, rows.row, strict=True))
    return {**row, **rows.dimension._asdict(), **rows.circumstance._asdict()}, rows.attempts


@given(entries)
def test_an_entry_comes_back(entry: Entry) -> None:
    assert entry_from(*joined(entry)) == entry


def test_an_ordinary_request_has_no_attempt_rows_and_a_small_detail() -> None:
    row, attempt_rows = joined(make_entry())
    assert not attempt_rows
    assert len(row["detail"]) < 90


def test_a_row_of_the_first_versions_says_nothing_of_audio_and_images() -> None:
    """Unknown is not the same as none: reprice leaves such a request alone if it may have had some."""
    row, attempt_rows = joined(make_entry(media=Media()))
    packed = msgspec.msgpack.decode(row["detail"])
    assert entry_from(row, attempt_rows).media == Media()
    assert entry_from({**row, "detail": msgspec.msgpack.encode(packed[:-5])}, attempt_rows).media is None


def test_two_hundred_models_take_little_more_of_a_row_than_five() -> None:
    """Names are with what repeats, and the same prediction for many models is stored once."""
    sizes: list[int] = []
    for number in (5, 200):
        models = [f"some-provider-model-{one}" for one in range(number)]
        places = Places({name: one % 60 for one, name in enumerate(models)}, dict.fromkeys(models, 0))
        predictions = Predictions(places.packed, tuple(range(5000, 5000 + min(number, 60))), (3000,))
        facts = make_facts(quality={}, output_tokens={}, predictions=predictions)
        row, attempt_rows = joined(make_entry(intent=make_intent(decision=make_decision(facts=facts))))
        assert entry_from(row, attempt_rows).intent.decision.facts == facts
        sizes.append(len(row["detail"]))
    assert sizes[1] < sizes[0] + 200


def test_the_columns_are_those_of_the_tables() -> None:
    assert list(Dimension._fields) == [column.name for column in dimensions.columns][2:]
    assert list(Circumstance._fields) == [column.name for column in circumstances.columns][2:]


@pytest.mark.parametrize("number", ["abc", "zz" * 16, "00" * 15])
def test_a_request_id_must_be_one(number: str) -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        entry_rows(make_entry(intent=make_intent(request_id=number)))
