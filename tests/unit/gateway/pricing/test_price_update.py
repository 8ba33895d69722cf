from dataclasses import replace
from datetime import date
from fractions import Fraction

import pytest

from gateway.pricing.catalogue import (
    Ladder,
    ModelPrices,
    ModelRecord,
    OffPeak,
    ProviderPrices,
    Rates,
    Service,
    Step,
    Window,
)
from gateway.pricing.price_update import Kind, append, compare, describe
from tests.unit.gateway.pricing.builders import at, make_file, make_prices

NOV, DEC, TODAY, NEXT = at("2026-11-01"), at("2026-12-01"), at("2026-12-15"), at("2026-12-20")
OLD = make_prices(Rates(2_000_000, 4_000_000), from_us=NOV)
NEW = make_prices(Rates(1_000_000, 4_000_000), from_us=DEC)
FILE = make_file(ModelRecord("large", (OLD,), ("large-0601",)), ModelRecord("old", (OLD,)))


def updated(*sources: tuple[str, object]) -> ProviderPrices:
    changes = compare([FILE], {"acme": dict(sources)}, at_us=TODAY)  # pyright: ignore[reportArgumentType]
    (file,) = append([FILE], changes, as_of_us=TODAY, undated_us=DEC)
    return file


def test_every_kind_of_difference_is_told() -> None:
    settled = replace(OLD, note="Settled: by hand")
    file = make_file(ModelRecord("a", (OLD,)), ModelRecord("b", (OLD,)), ModelRecord("c", (settled,)))
    changes = compare([file], {"acme": {"a": NEW, "c": NEW, "d": NEW}, "other": {"e": NEW}}, at_us=TODAY)
    assert [(change.kind, change.provider, change.model) for change in changes] == [
        (Kind.changed, "acme", "a"),
        (Kind.missing, "acme", "b"),
        (Kind.settled, "acme", "c"),
        (Kind.added, "acme", "d"),
        (Kind.added, "other", "e"),
    ]
    assert [change.is_written for change in changes] == [True, False, False, True, True]


def test_another_date_and_source_is_no_difference() -> None:
    same = replace(OLD, from_us=DEC, source="elsewhere")
    changes = compare([FILE], {"acme": {"large-0601": same}}, at_us=TODAY)
    assert {change.kind for change in changes} == {Kind.missing}


def test_a_class_that_costs_what_it_would_without_a_price_is_no_difference() -> None:
    told = Rates(2_000_000, 4_000_000, cached_input=2_000_000, reasoning=4_000_000)
    services = {"batch": Service(ladder=Ladder(told))}
    file = make_file(ModelRecord("large", (replace(OLD, services={"batch": Service(ladder=OLD.ladder)}),)))
    assert compare([file], {"acme": {"large": make_prices(told, services=services)}}, at_us=TODAY) == []


def test_what_a_source_tells_of_no_model_stays() -> None:
    """genai-prices has no surcharge for the US, and no price of what OpenAI caches for 12 hours."""
    base, dear = Rates(2_000_000, 4_000_000), Rates(4_000_000, 4_000_000)
    known = replace(base, cache_write_1h=5_000_000), replace(dear, cache_write_1h=10_000_000)
    services = {"us": Service(Fraction(11, 10)), "flex": Service(Fraction(1, 2)), "old": Service(ladder=OLD.ladder)}
    before = replace(OLD, ladder=Ladder(known[0], (Step(200, known[1]),)), services=services)
    told = Ladder(base, (Step(200, dear), Step(300, dear)))

    def found(ladder: Ladder) -> ModelPrices | None:
        source = {"large": replace(NEW, ladder=ladder), "other": replace(NEW, services={"flex": Service()})}
        return compare([make_file(ModelRecord("large", (before,)))], {"acme": source}, at_us=TODAY)[0].after

    assert found(told) == replace(
        NEW, ladder=Ladder(known[0], (Step(200, known[1]), Step(300, dear))), services={"us": services["us"]}
    )
    assert found(NEW.ladder) == replace(NEW, services={"us": services["us"]})  # the old one is of another price


def test_a_changed_price_is_appended_from_today_and_nothing_is_rewritten() -> None:
    file = updated(("large", NEW), ("fresh", NEW))
    assert [record.model for record in file.models] == ["fresh", "large", "old"]
    assert file.models[0].history == (NEW,)
    assert file.models[1].history == (OLD, replace(NEW, from_us=TODAY))
    assert file.models[2].history == (OLD,)


def test_an_alias_changes_the_record_it_names() -> None:
    assert updated(("large-0601", NEW)).models[0].history[-1].rates == NEW.rates


def test_a_price_that_the_source_dates_keeps_its_date() -> None:
    assert updated(("large", replace(NEW, from_us=NEXT))).models[0].history[-1].from_us == NEXT


def test_dates_that_are_off_peak_stay() -> None:
    """litellm's map has hours and weekdays alone."""
    nights = OffPeak((Window((1,), 0, 60),), NEW.ladder)
    before = replace(OLD, off_peak=replace(nights, dates=(date(2027, 1, 1),)))
    file = make_file(ModelRecord("large", (before,)))
    assert compare([file], {"acme": {"large": replace(OLD, off_peak=nights)}}, at_us=TODAY) == []
    (change,) = compare([file], {"acme": {"large": replace(NEW, off_peak=nights)}}, at_us=TODAY)
    assert change.after == replace(NEW, off_peak=before.off_peak)
    (gone,) = compare([file], {"acme": {"large": OLD}}, at_us=TODAY)
    assert describe(gone)[0].startswith("off-peak")


def test_a_record_of_the_same_day_is_not_rewritten() -> None:
    file = make_file(ModelRecord("large", (replace(OLD, from_us=TODAY),)))
    changes = compare([file], {"acme": {"large": NEW}}, at_us=TODAY)
    with pytest.raises(ValueError, match="large already has a price from 2026-12-15"):
        append([file], changes, as_of_us=TODAY, undated_us=DEC)


def test_a_price_that_was_announced_for_later_is_none_of_today() -> None:
    """An import before that day compared with it, and could neither agree nor append."""
    announced = make_prices(Rates(3_000_000, 4_000_000), from_us=NEXT)
    file = make_file(ModelRecord("large", (OLD, announced)))
    assert compare([file], {"acme": {"large": OLD}}, at_us=TODAY) == []
    changes = compare([file], {"acme": {"large": NEW}}, at_us=TODAY)
    (written,) = append([file], changes, as_of_us=TODAY, undated_us=DEC)
    assert written.models[0].history == (OLD, replace(NEW, from_us=TODAY), announced)
    changes = compare([file], {"acme": {"large": replace(NEW, from_us=NEXT)}}, at_us=TODAY)
    with pytest.raises(ValueError, match="large already has a price from 2026-12-20"):
        append([file], changes, as_of_us=TODAY, undated_us=DEC)
    (change,) = compare([file], {"acme": {"large": OLD}}, at_us=NEXT)
    assert change.before == announced


def test_the_difference_in_words() -> None:
    source = {"acme": {"a": replace(NEW, services={"flex": Service()})}}
    (change,) = compare([make_file(ModelRecord("a", (OLD,)))], source, at_us=TODAY)
    assert describe(change) == ["flex multiplier none -> 1", "input 2 -> 1"]
