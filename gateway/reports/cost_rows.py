"""Turns groups of the ledger's sums into rows of a cost report: selection, order, and the sum of the rest. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import add, attrgetter

from gateway.money import format_usd
from gateway.reports.row_order import OF_PRICES, Group, Priced, in_order
from gateway.reports.views import CostRow, Shown
from gateway.sums import TIMES, Dimension, Sums, SumsQuery

MTOK = 10**6
COUNTS = ("requests", "successful_requests", "input_tokens", "output_tokens")
MONEY = ("input_pico_usd", "cached_input_pico_usd", "cache_write_pico_usd", "output_pico_usd")
SIMULATED: Dimension = "is_simulated"
NUMBERS = Sums.__struct_fields__[1:-1]
_counts_of, _money_of, _numbers_of = attrgetter(*COUNTS), attrgetter(*MONEY), attrgetter(*NUMBERS)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups of one query, and its finer parts (additionally by model, operation, status, backend
    and simulated)."""

    query: SumsQuery
    groups: Sequence[Sums]
    parts: Sequence[Sums]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows shown, the sum of all others (None: there are none), and the most expensive."""

    rows: list[CostRow]
    others: CostRow | None
    dearest: list[CostRow]


def rows_of(table: Grouped, shown: Shown, names: Mapping[str, str] | None = None, ceased: Sequence[Sums] = ()) -> Rows:
    """Most expensive first, or by time, or in the requested order; the empty groups that `ceased` come last. `names`
    maps keys to names.

    Prices per input and output token cover only requests priced purely by token: GPU time has one price for both and is
    in the blended price only. Requests without a known price are in no unit price.
    """
    by = table.query.by
    timed = {part.group["model"] for part in table.parts if part.compute_pico_usd and not part.is_wholly_unpriced}
    own = [Priced(one) for one in _by_spend(table)]
    dearest = sorted(own, key=lambda one: -one.sums.corrected_cost_pico_usd)[: shown.dearest]
    groups = [*own, *map(Priced, ceased)]
    if shown.order is not None:
        if shown.order.removeprefix("-") in OF_PRICES:
            groups = _priced(groups, table.parts, by, timed)
        groups = in_order(groups, shown.order, by, lambda key: (names or {}).get(key, key))
    chosen = groups[shown.place]
    inside, outside = _split(table.parts, chosen, by)
    of_dearest = _made(dearest, _split(table.parts, dearest, by)[0], by, timed) if dearest else []
    if len(chosen) == len(groups):
        return Rows(_made(chosen, inside, by, timed), None, of_dearest)
    shown_groups = {_key(one.sums, by) for one in chosen}
    rest = added_up([one.sums for one in groups if _key(one.sums, by) not in shown_groups])
    [others] = _made([Priced(rest)], outside, (), timed)
    return Rows(_made(chosen, inside, by, timed), others, of_dearest)


def _split(parts: Sequence[Sums], groups: Sequence[Priced], by: Sequence[Dimension]) -> tuple[list[Sums], list[Sums]]:
    """The parts that belong to these groups, and all others."""
    wanted = {_key(one.sums, by) for one in groups}
    inside, outside = list[Sums](), list[Sums]()
    for part in parts:
        (inside if _key(part, by) in wanted else outside).append(part)
    return inside, outside


def _by_spend(table: Grouped) -> list[Sums]:
    by = table.query.by
    ordered = sorted(table.groups, key=lambda group: -group.corrected_cost_pico_usd)
    if by and by[0] in TIMES:
        ordered.sort(key=lambda group: tuple(value or "" for value in group.group.values()))
    return ordered


def added_up(groups: Sequence[Sums]) -> Sums:
    """The sum of all, without percentiles, which do not add up."""
    totals = [0] * len(NUMBERS)
    for one in groups:  # one by one: transposing 100,000 groups at once would let no other thread run meanwhile
        totals = list(map(add, totals, _numbers_of(one)))
    return Sums({}, **dict(zip(NUMBERS, totals, strict=True)), latencies=None)


def _made(
    groups: Sequence[Priced], parts: Sequence[Sums], by: Sequence[Dimension], timed: set[str | None]
) -> list[CostRow]:
    """Each group with unit prices and simulated cost from its finer parts. The simulated cost can be that of an attempt
    alone, without any simulated request."""
    simulated: Counter[Group] = Counter()
    for part in parts:
        if part.group[SIMULATED] == "true":
            simulated[_key(part, by)] += part.corrected_cost_pico_usd
    return [
        cost_row(one.sums, one.known, one.by_token, simulated[_key(one.sums, by)])
        for one in _priced(groups, parts, by, timed)
    ]


def _priced(
    groups: Sequence[Priced], parts: Sequence[Sums], by: Sequence[Dimension], timed: set[str | None]
) -> list[Priced]:
    """Groups with the sums that their unit prices divide; `timed`: models that are also paid for by time."""
    known = [part for part in parts if not part.is_wholly_unpriced]
    priced = joined(known, by)
    split = [part for part in known if part.group["model"] not in timed and not part.was_wholly_unpriced]
    is_same = len(split) == len(known) and not any(part.unpriced_requests for part in known)
    by_token = priced if is_same else joined(split, by, as_booked=True)
    return [Priced(one.sums, priced.get(key := _key(one.sums, by)), by_token.get(key)) for one in groups]


def cost_row(sums: Sums, priced: Sums | None, by_token: Sums | None, simulated_pico_usd: int = 0) -> CostRow:
    """One group with its unit prices; `priced` is the part with a known price, `by_token` the part priced by token."""
    cost = sums.corrected_cost_pico_usd
    known, tokened = priced or Sums({}), by_token or Sums({})
    input_pico = tokened.input_pico_usd + tokened.cached_input_pico_usd + tokened.cache_write_pico_usd
    latencies = sums.latencies
    return CostRow(
        group={str(name): value for name, value in sums.group.items()},
        requests=sums.requests,
        successful_requests=sums.successful_requests,
        input_tokens=sums.input_tokens,
        cached_input_tokens=sums.cached_input_tokens,
        output_tokens=sums.output_tokens,
        reasoning_tokens=sums.reasoning_tokens,
        web_searches=sums.web_searches,
        file_searches=sums.file_searches,
        other_tool_calls=sums.other_tool_calls,
        gpu_seconds=sums.gpu_seconds,
        cost_usd=format_usd(cost),
        list_cost_usd=format_usd(sums.list_pico_usd),
        input_usd_per_mtok=_per_mtok(input_pico, tokened.input_tokens),
        output_usd_per_mtok=_per_mtok(tokened.output_pico_usd, tokened.output_tokens),
        blended_usd_per_mtok=_per_mtok(cost, known.input_tokens + known.output_tokens),
        cost_per_request_usd=_each(cost, known.requests),
        cost_per_successful_request_usd=_each(cost, known.successful_requests),
        corrections_usd=format_usd(sums.adjustment_pico_usd),
        unpriced_requests=sums.still_unpriced_requests,
        estimated_requests=sums.estimated_requests,
        simulated_requests=sums.simulated_requests,
        simulated_usd=format_usd(simulated_pico_usd),
        cost_lower_usd=format_usd(sums.lower_pico_usd),
        cost_upper_usd=None if sums.unbounded_requests else format_usd(sums.upper_pico_usd),
        time_to_first_token_p50_seconds=latencies.time_to_first_token_p50_seconds if latencies else None,
        time_to_first_token_p95_seconds=latencies.time_to_first_token_p95_seconds if latencies else None,
        time_to_first_token_p99_seconds=latencies.time_to_first_token_p99_seconds if latencies else None,
        decode_tokens_per_second_p50=latencies.decode_tokens_per_second_p50 if latencies else None,
        decode_tokens_per_second_p5=latencies.decode_tokens_per_second_p5 if latencies else None,
    )


def empty_row() -> CostRow:
    """A row of no requests."""
    return cost_row(Sums({}), None, None)


def joined(
    parts: Sequence[Sums], by: Sequence[Dimension], *, as_booked: bool = False
) -> dict[tuple[str | None, ...], Sums]:
    """What unit prices divide, summed by `by`: money, and the counts known to have caused it."""
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for part in parts:
        counts: Iterable[int] = _counts_of(part)
        if part.unpriced_requests:
            counts = (part.priced(count, as_booked=as_booked) for count in counts)
        more = (*counts, *_money_of(part))
        before = groups.get(key := _key(part, by))
        groups[key] = list(more) if before is None else list(map(add, before, more))
    return {key: Sums({}, **dict(zip((*COUNTS, *MONEY), group, strict=True))) for key, group in groups.items()}


def _key(sums: Sums, by: Sequence[Dimension]) -> tuple[str | None, ...]:
    return tuple(sums.group[name] for name in by)


def _each(pico: int, requests: int) -> str | None:
    return format_usd(round(Fraction(pico, requests))) if requests else None


def _per_mtok(pico: int, tokens: int) -> str | None:
    return format_usd(round(Fraction(pico * MTOK, tokens))) if tokens else None
