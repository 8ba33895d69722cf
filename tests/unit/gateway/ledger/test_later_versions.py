"""What a later version has journalled or stored is read by this one: after a downgrade, and by the replicas of a fleet
that are not upgraded yet. Records may have grown by fields at their end."""

from typing import Any

import msgspec
import pytest

from backends.usage import Units
from classifier.predictions import Places, Predictions
from gateway.ledger.batch import Batch
from gateway.ledger.entry import Attempt, Media, PaidTo
from gateway.storage.rows.entry_detail import decode_detail, encode_detail, facts_from
from tests.unit.gateway.ledger.builders import make_decision, make_entry, make_facts, make_intent, request_id

UNITS = Units(images=2, search_units=3)
FACTS = make_facts(units=UNITS, warm_tokens={"mid-hosted": 100}, backend_state={"small-local": (2, 0.5)})
PAID = Attempt(1, "small-local", "local", "broke", 0.002, 0.1, 10, 502, PaidTo("local", "smollm2", False, 5, 10))
ENTRY = make_entry(
    intent=make_intent(decision=make_decision(facts=FACTS)), attempts=(PAID,), media=Media(images=2, search_units=3)
)


def grown(value: object) -> Any:
    """As a version would write it in which every record has a field more."""
    if isinstance(value, msgspec.Struct):
        return [*map(grown, msgspec.structs.astuple(value)), "new"]
    if isinstance(value, tuple | list):
        more = ["new"] if hasattr(value, "_fields") else []
        return [*map(grown, value), *more]
    if isinstance(value, dict):
        return {name: grown(one) for name, one in value.items()}
    return value


def test_a_journals_entry_with_more_fields_is_the_entry_without_them() -> None:
    assert list(Batch([request_id(1)], [msgspec.msgpack.encode(grown(ENTRY))])) == [ENTRY]


@pytest.mark.parametrize("facts", [FACTS, make_facts()])
def test_stored_facts_with_more_units_are_the_facts_without_them(facts: Any) -> None:
    entry = make_entry(intent=make_intent(decision=make_decision(facts=facts)))
    stored = msgspec.msgpack.decode(encode_detail(entry, is_plain=True))
    before, units, after = stored[:-4], stored[-4], stored[-3:]
    assert list(units) == ([] if facts.units == Units() else [2, 0, 0, 3])
    detail = decode_detail(msgspec.msgpack.encode([*before, [*units, 7] if units else units, *after, "new"]))
    assert facts_from(detail, entry.intent.decision.candidates, None) == facts


def test_an_earlier_version_reads_an_entry_whose_predictions_are_packed() -> None:
    """It ships it without them: what it takes for qualities is a map still."""
    predictions = Predictions(Places({"a": 0}, {"a": 0}).packed, (5000,), (10,))
    entry = make_entry(intent=make_intent(decision=make_decision(facts=make_facts(predictions=predictions))))
    facts = msgspec.msgpack.decode(msgspec.msgpack.encode(entry))[0][9][9]
    assert facts[: len(facts) - 1] == msgspec.msgpack.decode(msgspec.msgpack.encode(make_facts()))[:-1]


def test_a_row_is_read_without_the_predictions_models() -> None:
    """By an earlier version beside this one, and by both after its schema, which lacks that column, was gone back
    to."""
    predictions = Predictions(Places({"a": 0, "b": 0}, {"a": 0, "b": 0}).packed, (5000,), (10,))
    known: dict[str, Any] = {
        "quality": {},
        "output_tokens": {},
        "warm_tokens": {"b": 7},
        "backend_state": {"a": (1, 0.5)},
    }
    facts = make_facts(predictions=predictions, **known)
    entry = make_entry(intent=make_intent(decision=make_decision(facts=facts, candidates=("b",))))
    detail = decode_detail(encode_detail(entry, is_plain=True))
    assert facts_from(detail, ("b",), None) == make_facts(**known)
    assert facts_from(detail, ("b",), predictions.models) == facts
