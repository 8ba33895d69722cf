"""Two equally good backends at the same cost: which one is asked first."""

import zlib
from collections import Counter
from typing import Any

import pytest

from gateway.routing.decide import decide
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_local, make_request, make_snapshot

ANY = "version: 1\nrules: [{name: default, choose: {from: %s}}]\n"
ALIKE = {"quality": {"one": 0.8, "two": 0.8, "worse": 0.1}, "output_tokens": {"one": 50.0, "two": 50.0, "worse": 50.0}}
SAME: dict[str, Any] = {"upstream_model": "same"}


def engines(choose: str = "any") -> Snapshot:
    made = [make_local(name, backend=name, **SAME) for name in ("one", "two", "worse")]
    return make_snapshot(ANY % choose, made)


def hosted(choose: str = "any", **second: Any) -> Snapshot:
    made = [make_candidate("one", **SAME), make_candidate("two", **{**SAME, **second})]
    return make_snapshot(ANY % choose, made)


def first(snapshot: Snapshot, **facts: Any) -> str:
    return decide(make_request(**{**ALIKE, **facts}), snapshot).decision.model


@pytest.mark.parametrize(
    ("slots", "warm", "expected"),
    [
        ({"one": (60, 0.0), "two": (64, 0.0)}, {}, "two"),
        ({"one": (64, 0.0), "two": (60, 0.0)}, {}, "one"),
        ({"one": (40, 0.0), "two": (64, 0.0)}, {"one": 400}, "one"),
        ({"one": (31, 0.0), "two": (64, 0.0)}, {"one": 400}, "two"),
        ({"one": (50, 0.0), "two": (64, 0.0)}, {"one": 400, "two": 400}, "two"),
        ({"one": (0, 0.0), "two": (1, 0.0)}, {"one": 400}, "two"),
        ({"one": (0, 3.0), "two": (0, 2.0)}, {}, "two"),
    ],
)
def test_engines_share_by_free_slots_and_follow_what_is_warm_where_it_is_not_much_busier(
    slots: dict[str, tuple[int, float]], warm: dict[str, int], expected: str
) -> None:
    state = {"worse": (0, 9.0), **slots}
    assert first(engines("[one, two, worse]"), backend_state=state, warm_tokens=warm) == expected


def test_what_says_nothing_of_itself_is_chosen_by_chance_and_the_propensity_says_so() -> None:
    snapshot = hosted()
    made = [decide(make_request(**ALIKE, draw=place / 1000), snapshot) for place in range(1000)]
    found = Counter(one.decision.model for one in made)
    assert 400 < found["one"] < 600
    assert {one.decision.propensity for one in made} == {0.5}
    assert {tuple(candidate.name for candidate in one.order) for one in made} == {("one", "two"), ("two", "one")}
    again = [decide(make_request(**ALIKE, draw=place / 1000), snapshot) for place in range(1000)]
    assert again == made, "the same draw decides the same"
    as_ever = [
        min(("one", "two"), key=lambda name: zlib.crc32(f"{place / 1000} {name}".encode())) for place in range(1000)
    ]
    assert [one.decision.model for one in made] == as_ever, "entries of past months are decided again as they were"


def test_exploring_among_equals_keeps_its_propensities() -> None:
    """Each is preferred in half of 80 % of the requests and tried in half of 20 %."""
    snapshot = make_snapshot(
        "version: 1\nrules: [{name: default, choose: {from: any, explore: 0.2}}]\n",
        [make_candidate("one", **SAME), make_candidate("two", **SAME), make_candidate("worse")],
    )
    made = [decide(make_request(**ALIKE, draw=place / 3000), snapshot).decision for place in range(3000)]
    found = Counter(one.model for one in made)
    propensities = {one.model: one.propensity for one in made}
    assert propensities == pytest.approx({"one": 0.4 + 0.2 / 3, "two": 0.4 + 0.2 / 3, "worse": 0.2 / 3})
    assert {name: count / 3000 for name, count in found.items()} == pytest.approx(propensities, abs=0.03)


@pytest.mark.parametrize(
    ("snapshot", "facts"),
    [
        (hosted("[two, one], by: order"), {}),
        (hosted(), {"quality": {"one": 0.8, "two": 0.81}}),
        (hosted(), {"output_tokens": {"one": 50.0, "two": 49.0}}),
        (hosted(upstream_model="another"), {"quality": {}}),
    ],
)
def test_chance_decides_nothing_else(snapshot: Snapshot, facts: dict[str, Any]) -> None:
    made = [decide(make_request(**{**ALIKE, **facts}, draw=place / 50), snapshot).decision for place in range(50)]
    assert len({one.model for one in made}) == 1
    assert {one.propensity for one in made} == {1.0}
