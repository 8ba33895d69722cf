"""Thousands of usages priced by us, by litellm and by genai-prices: equal, or different for a reason that has a name.

A reason is a hypothesis that must reproduce the other's number from ours by changing one thing. A difference without a
reason fails the test, and so does a reason that no longer explains anything.
"""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.util import find_spec
from itertools import product

import msgspec
import pytest

from backends.usage import Usage
from gateway.config.price_files import load_price_book
from gateway.config.price_sources import Imported, load_source
from gateway.pricing.catalogue import Ladder, ModelPrices, PriceBook, Rates, Step
from gateway.pricing.genai_prices_map import PROVIDERS as GENAI_PROVIDERS
from gateway.pricing.price import UnknownServiceTier, class_amounts, price, rounded, service, unit_rates

pytestmark = pytest.mark.skipif(
    find_spec("litellm") is None or find_spec("genai_prices") is None,
    reason="the other price functions are missing: pip install 'breakeven[litellm]'",
)
AS_OF = date(2026, 11, 21)
AT_US = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1_000_000
SEED = 20261121
USAGES_EACH = 6
THEIR_NAMES = {ours: theirs for theirs, ours in GENAI_PROVIDERS.items()}
FLOAT_ERROR = 2e-9
ROUNDING_PICO_USD = 3


@dataclass(frozen=True, slots=True)
class Case:
    """`known` is our catalogue's record, `theirs` the other package's own data as read by our importer."""

    package: str
    provider: str
    model: str
    usage: Usage
    known: ModelPrices | None
    theirs: ModelPrices


def usages(generator: random.Random) -> Iterator[Usage]:
    """Usages of all sizes, around the steps for long prompts, with caches, reasoning and service tiers."""
    for _ in range(USAGES_EACH):
        size = generator.choice([0, 1, 50, 3_000, 30_000, 150_000, 200_000, 250_000, 600_000])
        tokens = generator.randint(size // 2, size)
        read = generator.randint(0, tokens) if generator.random() < 0.5 else 0
        written = generator.randint(0, tokens - read) if generator.random() < 0.3 else 0
        long = generator.randint(0, written) if generator.random() < 0.3 else 0
        output = generator.choice([0, 1, 200, 5_000])
        output = generator.randint(output // 2, output)
        yield Usage(
            input_tokens=tokens,
            cached_input_tokens=read,
            cache_write_5m_tokens=written - long,
            cache_write_1h_tokens=long,
            output_tokens=output,
            reasoning_tokens=generator.randint(0, output) if generator.random() < 0.3 else 0,
            service_tier=generator.choice([None] * 8 + ["priority", "flex"]),
        )


def cases_of(package: str, imported: Imported, book: PriceBook, generator: random.Random) -> Iterator[Case]:
    for provider in sorted(imported):
        for model, theirs in sorted(imported[provider].items()):
            if theirs.off_peak is not None:
                continue  # litellm prices by the current hour, we by the request's
            if any(rate is not None for rate in unit_rates(theirs)):
                continue  # its function is called with tokens here
            for usage in usages(generator):
                if usage.service_tier is not None and (
                    package == "genai-prices" or usage.service_tier not in theirs.services
                ):
                    continue  # it lacks the tier, and prices as ordinary what we reject
                yield Case(package, provider, model, usage, book.lookup(provider, model, AT_US), theirs)


def ask(cases: list[Case]) -> list[int | None]:
    """The other packages' costs, rounded to pico-USD."""
    asked = [
        (
            case.package,
            THEIR_NAMES[case.provider] if case.package == "genai-prices" else case.provider,
            case.model,
            msgspec.to_builtins(case.usage),
        )
        for case in cases
    ]
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.unit.gateway.pricing.oracles"],
        input=json.dumps(asked),
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    found: list[str | None] = json.loads(process.stdout.splitlines()[-1])
    return [None if dollars is None else round(Decimal(dollars) * 10**12) for dollars in found]


def cost(usage: Usage, prices: ModelPrices) -> int | None:
    """Our cost; None if there is no price for the tier."""
    try:
        return price(usage, prices).total_pico_usd
    except UnknownServiceTier:
        return None


def is_equal(ours: int | None, theirs: int) -> bool:
    return ours is not None and abs(ours - theirs) <= max(ROUNDING_PICO_USD, FLOAT_ERROR * abs(theirs))


def changed(prices: ModelPrices, change: Callable[[Rates], Rates]) -> ModelPrices:
    """A model's prices with the rates of every list changed."""

    def ladder(given: Ladder) -> Ladder:
        steps = tuple(Step(step.above_input_tokens, change(step.rates), step.is_marginal) for step in given.steps)
        return Ladder(change(given.base), steps)

    services = {
        name: replace(service, ladder=None if service.ladder is None else ladder(service.ladder))
        for name, service in prices.services.items()
    }
    return replace(prices, ladder=ladder(prices.ladder), services=services)


def half_price_for_cached(rates: Rates) -> Rates:
    return replace(rates, cached_input=rates.input // 2) if rates.cached_input is None else rates


def free_writes(rates: Rates) -> Rates:
    return rates if rates.cache_write_5m is not None else replace(rates, cache_write_5m=0)


def ordinary_where_a_tier_is_silent(case: Case, theirs: int) -> bool:
    """litellm looks up each class separately: classes missing from a tier's list cost the ordinary price."""
    if case.usage.service_tier is None:
        return False
    ladder, factor = service(case.theirs, case.usage.service_tier)
    of_tier = [rounded(amount, factor) for amount in class_amounts(case.usage, ladder)]
    ordinary = class_amounts(case.usage, case.theirs.ladder)
    return any(is_equal(sum(mix), theirs) for mix in product(*zip(of_tier, ordinary, strict=True)))


def its_own_prices(case: Case, theirs: int) -> bool:
    """Its data have another price than our record: with its prices, our arithmetic gives its number."""
    return case.known is not None and is_equal(cost(case.usage, case.theirs), theirs)


def only_it_knows_the_model(case: Case, theirs: int) -> bool:
    """Our catalogue is seeded from one of the two: with the other's price, our arithmetic gives its number."""
    return case.known is None and is_equal(cost(case.usage, case.theirs), theirs)


def half_price_cache(case: Case, theirs: int) -> bool:
    if case.provider != "fireworks_ai":
        return False
    return is_equal(cost(case.usage, changed(case.theirs, half_price_for_cached)), theirs)


def cache_writes_for_nothing(case: Case, theirs: int) -> bool:
    """A zero beside a price: litellm takes it as free, we as "not billed separately", and charge it as input."""
    return is_equal(cost(case.usage, changed(case.theirs, free_writes)), theirs)


def one_name_two_entries(case: Case, theirs: int) -> bool:
    """Its map has the model twice, under the provider's prefix and without it, and the second costs nothing."""
    return case.model == "gemini-exp-1206" and theirs == 0


def finer_than_a_pico_dollar(case: Case, theirs: int) -> bool:
    """A rate such as a twelfth of a dollar per million tokens: ours is rounded to whole pico-dollars per token."""
    ours = cost(case.usage, case.known or case.theirs)
    most = (case.usage.input_tokens + case.usage.output_tokens) / 2 + ROUNDING_PICO_USD
    return ours is not None and abs(ours - theirs) <= most


REASONS: dict[str, Callable[[Case, int], bool]] = {
    "its data say another price": its_own_prices,
    "a model that only it knows": only_it_knows_the_model,
    "cached input without a price at half of it (Fireworks)": half_price_cache,
    "a zero price for cache writes taken for free": cache_writes_for_nothing,
    "ordinary prices where a service tier's list is silent": ordinary_where_a_tier_is_silent,
    "a rate finer than a pico-dollar per token": finer_than_a_pico_dollar,
    "one name, two entries": one_name_two_entries,
}


def test_every_difference_has_a_name() -> None:
    generator, book = random.Random(SEED), load_price_book(overrides=[])
    cases = [
        case
        for package in ("litellm", "genai-prices")
        for case in cases_of(package, load_source(package, as_of=AS_OF), book, generator)
    ]
    compared, found, unexplained = 0, Counter[str](), list[str]()
    for case, theirs in zip(cases, ask(cases), strict=True):
        if theirs is None:
            continue
        compared += 1
        if case.known is not None and is_equal(cost(case.usage, case.known), theirs):
            found[f"{case.package}: equal"] += 1
            continue
        reason = next((name for name, holds in REASONS.items() if holds(case, theirs)), None)
        if reason is None:
            ours = cost(case.usage, case.known or case.theirs)
            unexplained.append(f"{case.package} {case.provider}/{case.model} {case.usage}: {theirs}, ours {ours}")
        else:
            found[f"{case.package}: {reason}"] += 1
    print(json.dumps({"compared": compared, **found}, indent=1))
    assert not unexplained, "\n".join(unexplained[:20])
    assert compared > 5_000
    assert found["litellm: equal"] > 2_000
    assert found["genai-prices: equal"] > 1_000
    assert {name.partition(": ")[2] for name in found} == {"equal", *REASONS}
