"""Which conversations are recognised where and for how long; tenants never see each other's."""

from typing import Any

import pytest

from gateway.upstreams.prompt_prefixes import LONGEST, prefixes_of
from gateway.upstreams.warm_prefixes import MemoryWarmPrefixes, PromptCache, note_answer
from tests.unit.gateway.ledger.builders import make_entry, make_intent

TURNS = [("system", "s" * 8000), ("user", "q" * 4000)]
LONGER = [*TURNS, ("assistant", "a" * 400), ("user", "and?")]
CACHES = {"openai": PromptCache(ttl_seconds=300)}


def noted(caches: dict[str, PromptCache] | None = None, **entry: Any) -> MemoryWarmPrefixes:
    warm = MemoryWarmPrefixes()
    made = make_entry(model="m", backend="openai", intent=make_intent(team="red"), **entry)
    note_answer(warm, caches or CACHES, made, prefixes_of(TURNS), 100.0)
    return warm


def test_the_next_turn_finds_what_the_last_one_left_warm() -> None:
    warm = noted()
    assert warm.lookup("team red", prefixes_of(LONGER), 101.0) == {"m": 2944}, "3,008 in whole steps of 128"
    assert warm.lookup("team red", prefixes_of([TURNS[0], ("user", "else")]), 101.0) == {"m": 1920}, "the system prompt"


@pytest.mark.parametrize(
    ("tenant", "turns", "at"),
    [
        ("team blue", LONGER, 101.0),
        ("key key-1", LONGER, 101.0),
        ("team red", LONGER, 400.0),
        ("team red", [("user", "s" * 8000), *LONGER[1:]], 101.0),
        ("team red", [("system", "s" * 7999 + "!"), *LONGER[1:]], 101.0),
        ("team red", [], 101.0),
    ],
)
def test_another_tenant_a_later_time_and_other_words_find_nothing(
    tenant: str, turns: list[tuple[str, str]], at: float
) -> None:
    assert noted().lookup(tenant, prefixes_of(turns), at) == {}


def test_where_caching_is_on_demand_only_what_was_reported_counts() -> None:
    on_demand = {"openai": PromptCache(is_automatic=False, step_tokens=1)}
    nothing = noted(on_demand, input_tokens=3000, cached_input_tokens=0, cache_write_5m_tokens=0)
    assert nothing.lookup("team red", prefixes_of(LONGER), 101.0) == {}
    half = noted(on_demand, input_tokens=3000, cached_input_tokens=500, cache_write_5m_tokens=1000)
    assert half.lookup("team red", prefixes_of(LONGER), 101.0) == {"m": 1504}, "half of the 3,008 estimated"
    an_hour = noted(on_demand, input_tokens=3000, cached_input_tokens=0, cache_write_1h_tokens=3000)
    assert an_hour.lookup("team red", prefixes_of(LONGER), 3600.0) == {"m": 3008}


def test_memory_is_bounded_and_the_oldest_goes_first() -> None:
    warm = MemoryWarmPrefixes(most=2)
    for number in range(3):
        warm.note("t", (bytes([number]), 1), "m", 10, 1e9)
    assert len(warm) == 2
    assert warm.lookup("t", [(bytes([0]), 1)], 0.0) == {}
    assert warm.lookup("t", [(bytes([2]), 1)], 0.0) == {"m": 10}


def test_a_long_conversation_keeps_its_first_turn_and_its_last_ones() -> None:
    turns = [("user", str(number)) for number in range(100)]
    found = prefixes_of(turns)
    assert len(found) == 1 + LONGEST
    assert found[0] == prefixes_of(turns[:1])[0]
    assert found[-1] == prefixes_of(turns)[-1]


def test_roles_and_borders_count() -> None:
    one = prefixes_of([("user", "ab"), ("user", "c")])
    assert one[-1] != prefixes_of([("user", "a"), ("user", "bc")])[-1]
    assert one[-1] != prefixes_of([("user", "ab"), ("assistant", "c")])[-1]
    assert prefixes_of([("user", "\ud800")])


def test_with_other_tools_before_it_no_beginning_is_the_same() -> None:
    plain, one, other = (prefixes_of(TURNS, tools) for tools in ((), (b'{"name":"f"}',), (b'{"name":"g"}',)))
    assert not {mark for mark, _ in plain} & {mark for mark, _ in one}
    assert not {mark for mark, _ in one} & {mark for mark, _ in other}
    assert prefixes_of(TURNS, [b'{"name":"f"}']) == one
