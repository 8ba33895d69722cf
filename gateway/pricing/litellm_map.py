"""Converts litellm's packaged price map (JSON text) to our price values. Never imports litellm, opens no file."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

from gateway.instants import start_of_day_us
from gateway.money import PICO_PER_USD
from gateway.pricing.catalogue import Ladder, ModelPrices, OffPeak, Rates, Service, Step, Window

PROVIDERS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
    "deepseek": "deepseek",
    "groq": "groq",
    "mistral": "mistral",
    "together_ai": "together_ai",
    "xai": "xai",
    "cerebras": "cerebras",
    "fireworks_ai": "fireworks_ai",
    "fireworks_ai-embedding-models": "fireworks_ai",
    "cohere": "cohere",
    "jina_ai": "jina_ai",
    "voyage": "voyage",
}
"""litellm's provider names to ours. It has no OpenRouter prices; those come from genai-prices."""
RANKERS = frozenset({"cohere", "jina_ai", "voyage"})
"""Providers used only for ranking documents."""
BY_THE_PIECE = {
    "image_generation": ("per_image_pico_usd", ("output_cost_per_image", "input_cost_per_image")),
    "audio_transcription": ("per_audio_second_pico_usd", ("input_cost_per_second",)),
    "audio_speech": ("per_character_pico_usd", ("input_cost_per_character",)),
    "rerank": ("per_search_unit_pico_usd", ("input_cost_per_query",)),
}
"""By mode: the unit that may be billed, and the map's fields for its price. A model that also has token prices is
billed by those: the unit price is then only the provider's estimate of what they amount to."""
REACHING = frozenset({"xai"})
"""Providers whose price for long prompts begins at the threshold itself, not above it."""
MODES = ("chat", "responses", "embedding", *BY_THE_PIECE, "moderation")
FREE_MODES = ("moderation",)
"""Modes in which a price of zero is real: their providers say that they charge nothing."""
SERVICES = {"batches": "batch", "flex": "flex", "priority": "priority", "ultrafast": "ultrafast"}
SURCHARGES = ("fast", "us")
"""Anthropic's, for faster answers, and for computation in one country."""
CLASSES = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cached_input",
    "cache_read_input_audio_token_cost": "cached_audio_input",
    "cache_creation_input_token_cost": "cache_write_5m",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "cache_creation_input_token_cost_above_12hr": "cache_write_1h",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_audio_token": "audio_input",
    "output_cost_per_audio_token": "audio_output",
    "input_cost_per_image_token": "image_input",
    "output_cost_per_image_token": "image_output",
}
PIXELS = re.compile(r"\d-x-\d|^(?:low|medium|high|standard|hd)/")
"""Marks names that describe an image size or quality instead of a model."""
FIELD = re.compile(
    rf"(?P<name>{'|'.join(sorted(CLASSES, key=len, reverse=True))})"
    rf"(?:_above_(?P<above>\d+)k_tokens)?(?:_(?P<service>{'|'.join(SERVICES)}))?"
)
Fields = Mapping[str, Any]
Classes = dict[str, int]


def parse_litellm_map(text: str, *, as_of: date, source: str) -> dict[str, dict[str, ModelPrices]]:
    """Provider -> model -> prices, for models of MODES that are priced and not retired by `as_of`.

    A model that costs nothing is left out, except in FREE_MODES: an unknown price must not read as free. So is a model
    whose image price depends on size and quality, as no single figure is its price.
    """
    found: dict[str, dict[str, ModelPrices]] = {}
    # Of two entries for one model, the one under the provider's own prefix wins: it is sorted last.
    models = sorted(json.loads(text, parse_float=Decimal).items(), key=lambda item: "/" in item[0])
    by_size = frozenset(name.rpartition("/")[2] for name, _ in models if PIXELS.search(name))
    for name, fields in models:
        provider = PROVIDERS.get(fields.get("litellm_provider"))
        if provider is None or not is_current(name, fields, as_of):
            continue
        prices = parse_fields(fields, from_us=start_of_day_us(as_of.replace(day=1)), source=source)
        is_by_size = name.rpartition("/")[2] in by_size
        if prices is not None and not (is_by_size and prices.per_image_pico_usd is not None):
            found.setdefault(provider, {})[model_name(name, str(fields["litellm_provider"]))] = prices
    return found


def model_name(name: str, litellm_provider: str) -> str:
    """The provider's own name for the model."""
    for prefix in {litellm_provider, PROVIDERS[litellm_provider]}:
        name = name.removeprefix(prefix + "/")
    return name


def is_current(name: str, fields: Fields, as_of: date) -> bool:
    retired = fields.get("deprecation_date")
    if fields.get("mode") not in MODES or (retired and date.fromisoformat(retired) <= as_of):
        return False
    if fields["litellm_provider"] in RANKERS and fields["mode"] != "rerank":
        return False
    if fields["mode"] in BY_THE_PIECE and (PIXELS.search(name) or not is_asked_whole(name, fields)):
        return False
    # Fireworks: only full names reach its API. Fine-tunes and size classes name no model that can be called.
    return not name.startswith(("ft:", "together-ai-", "fireworks-ai-")) and (
        not name.startswith("fireworks_ai/") or name.startswith("fireworks_ai/accounts/")
    )


def is_asked_whole(name: str, fields: Fields) -> bool:
    """Whether such a model has an endpoint that takes a single request. Fireworks bills images by steps, with figures
    that the map lists as token prices."""
    if fields["mode"] == "rerank":
        return True
    endpoints = fields.get("supported_endpoints")
    return not name.startswith("fireworks_ai/") and (
        endpoints is None or any(path.startswith(("/v1/images/", "/v1/audio/")) for path in endpoints)
    )


def parse_fields(fields: Fields, *, from_us: int, source: str) -> ModelPrices | None:
    """One model's prices, or None if it has none."""
    tables = by_table(fields)
    standard = tables.get(("", 0), {})
    by_the_piece: dict[str, int] = {}
    if not any(standard.values()):
        by_the_piece = piece_price(fields)
        if not by_the_piece and not is_free(fields, standard):
            return None
    drawn = standard.get("image_output", 0)  # for models that only draw it is their one output price
    base = {"input": standard.get("input", 0), "output": drawn, **standard}
    ladder = ladder_of(base, {above: table for (service, above), table in tables.items() if above and not service})
    services = {SERVICES[name]: service_of(name, base, ladder, tables) for name in SERVICES if (name, 0) in tables}
    services |= surcharges_of(fields)
    off_peak = off_peak_of(fields.get("off_peak_pricing"), ladder)
    prices = ModelPrices(ladder=ladder, from_us=from_us, source=source, services=services, off_peak=off_peak)
    return replace(prices, **by_the_piece)


def piece_price(fields: Fields) -> dict[str, int]:
    """The price per image, second, character or search under its name in ModelPrices; empty if there is none."""
    name, places = BY_THE_PIECE.get(fields["mode"], ("", ()))
    found = (fields.get(place) for place in places)
    usd = next((value for value in found if isinstance(value, int | Decimal) and value), None)
    return {} if usd is None else {name: per_token(Decimal(usd))}


def is_free(fields: Fields, standard: Classes) -> bool:
    return fields["mode"] in FREE_MODES and set(standard) == {"input", "output"}


def surcharges_of(fields: Fields) -> dict[str, Service]:
    if fields.get("litellm_provider") != "anthropic":
        return {}
    terms: Fields = fields.get("provider_specific_entry") or {}
    return {name: Service(multiplier=Fraction(terms[name])) for name in SURCHARGES if name in terms}


def by_table(fields: Fields) -> dict[tuple[str, int], Classes]:
    """Rates in pico-USD by (service suffix, the most tokens that cost less)."""
    tables: dict[tuple[str, int], Classes] = {}
    for key, value in fields.items():
        match = FIELD.fullmatch(key)
        if match is None or not isinstance(value, int | Decimal):
            continue
        pico = per_token(Decimal(value))
        name = CLASSES[match["name"]]
        # A zero beside a price means "not billed separately", our None: the class then costs as its plain class does.
        if pico or name in ("input", "output"):
            above = int(match["above"]) * 1000 - (fields.get("litellm_provider") in REACHING) if match["above"] else 0
            table = tables.setdefault((match["service"] or "", above), {})
            table[name] = pico
    return tables


def per_token(usd_per_token: Decimal) -> int:
    """Pico-USD, rounded half-even if the source is finer than a pico-dollar."""
    return int((usd_per_token * PICO_PER_USD).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def ladder_of(base: Classes, steps: Mapping[int, Classes]) -> Ladder:
    """Classes that a step omits keep their base price, as in litellm's own function, unless it is the input's: images
    at xAI cost what the input does, in long prompts too."""
    own = {name: rate for name, rate in base.items() if name != "image_input" or rate != base["input"]}
    return Ladder(Rates(**base), tuple(Step(above, Rates(**{**own, **steps[above]})) for above in sorted(steps)))


def service_of(name: str, base: Classes, standard: Ladder, tables: Mapping[tuple[str, int], Classes]) -> Service:
    """A multiplier if every class agrees on it; otherwise a price list, its gaps filled by the input's ratio."""
    ratios = {key: Fraction(value, base[key]) for key, value in tables[name, 0].items() if base.get(key)}
    of_input = ratios.get("input", Fraction(1))
    stepped = {above: table for (service, above), table in tables.items() if service == name and above}
    if (
        has_decimal_text(of_input)
        and set(ratios.values()) == {of_input}
        and all(agrees(step, stepped, of_input) for step in standard.steps)
    ):
        return Service(multiplier=of_input)
    scaled = {key: round(value * ratios.get(key, of_input)) for key, value in base.items()}
    steps = {
        step.above_input_tokens: {
            **{key: round(value * ratios.get(key, of_input)) for key, value in classes(step.rates)},
            **stepped.get(step.above_input_tokens, {}),
        }
        for step in standard.steps
    }
    return Service(ladder=ladder_of({**scaled, **tables[name, 0]}, steps))


def has_decimal_text(ratio: Fraction) -> bool:
    """Whether the ratio is a finite decimal, as 5/4 is and 5/3 is not."""
    return 10**12 % ratio.denominator == 0


def agrees(step: Step, stepped: Mapping[int, Classes], ratio: Fraction) -> bool:
    own = stepped.get(step.above_input_tokens, {})
    return all(value == ratio * getattr(step.rates, key) for key, value in own.items() if getattr(step.rates, key))


def classes(rates: Rates) -> Iterator[tuple[str, int]]:
    for name in CLASSES.values():
        value: int | None = getattr(rates, name)
        if value is not None:
            yield name, value


def off_peak_of(terms: Fields | None, ladder: Ladder) -> OffPeak | None:
    if not terms:
        return None
    own = by_table(terms).get(("", 0), {})
    windows: list[Window] = []
    for window in terms["windows"]:
        hours = [window["hours_utc"]] if isinstance(window["hours_utc"], str) else window["hours_utc"]
        for span in hours:
            start, end = (minutes(text) for text in span.split("-"))
            windows.append(Window(tuple(window["weekdays"]), start, end or 24 * 60))
    return OffPeak(tuple(windows), Ladder(replace(ladder.base, **own), ladder.steps))


def minutes(text: str) -> int:
    hours, _, minute = text.partition(":")
    return int(hours) * 60 + int(minute)
