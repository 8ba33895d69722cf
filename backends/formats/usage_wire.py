"""Reads the usage objects that providers send and normalises them to ours. Pure; knows nothing of streams or HTTP.

A count that is negative, fractional, not a number or absurd makes the whole object malformed, and a malformed usage
counts as none: a wrong number must not reach the books as if the provider had vouched for it.

Rules that differ between providers, each found by the fields themselves and never by the provider's name:

* DeepSeek says `prompt_cache_hit_tokens`, Moonshot and Together `cached_tokens`, OpenAI `prompt_tokens_details`.
* Proxies in front of Anthropic add `cache_creation_input_tokens`, DashScope the same in `prompt_tokens_details`,
  OpenRouter `cache_write_tokens`; all are inside `prompt_tokens`. How long they are kept is in `cache_creation`,
  litellm's `cache_creation_token_details`, or OpenAI's `cache_write_tokens_details`, whose 12 hours are its longer and
  dearer time, as an hour is Anthropic's.
* xAI and Gemini's compatible endpoint leave reasoning out of `completion_tokens`; `total_tokens` shows it.
* Mistral leaves audio out of `prompt_tokens`; `total_tokens` shows it. Grok at Azure leaves the cached tokens out of
  both, and its `prompt_tokens_details` has the `text_tokens`.
* Vercel's gateway (`market_cost`) leaves Gemini's reasoning out of both, and bills it.
* LiteLLM until October 2025 left Bedrock's cache writes out of `prompt_tokens`; `total_tokens` shows them.
* litellm has Anthropic's `speed`, `inference_geo` and `service_tier` inside the usage.
* What a search of Gemini's found is in litellm's `total_tokens` and `tool_use_tokens`, and free by its account.
* Kimi behind some servers, and OpenRouter, count more reasoning than `completion_tokens`: the larger of the two is the
  output, an estimate unless `total_tokens` agrees.
* Web searches made for the answer are in OpenRouter's `server_tool_use`, litellm's `prompt_tokens_details`,
  Perplexity's `num_search_queries`, xAI's `server_side_tool_usage_details`, and DashScope's `plugins` (chats) and
  `x_tools` (responses). OpenAI's usage is silent: see hosted_tools.py.
* What is charged, tools included, is in xAI's `cost_in_usd_ticks`, ten billionths of a dollar, which is all that its
  images report; in the `total_cost` of Perplexity's `cost`, known by its `currency`; in the `gateway_cost` of Vercel's
  gateway, which is its `cost` and its surcharges, and beside the usage of messages and responses; and in OpenRouter's
  `cost`, known by its `is_byok`. With the caller's own key at the provider, OpenRouter's is its fee, and the provider's
  price is beside it; Vercel's `cost` is 0 then, and its `market_cost` is not. Other servers' `cost` is their estimate.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, TypeVar, cast

from backends.formats.json_objects import part_of
from backends.usage import EngineTimings, Usage

MAX_TOKENS: Final = 10**9
"""No call consumes a billion tokens: a count above it is an overflow or an attack."""
_LARGEST_FIGURE: Final = 10**12
_MOST_DOLLARS: Final = 10_000
"""No call costs as much."""
_PICO_PER_TICK: Final = 100
PICO_PER_USD: Final = 10**12

_VERCELS: Final = {"cost": "cost", "gatewayCost": "gateway_cost", "marketCost": "market_cost"}
"""Amounts of Vercel's gateway beside a usage, and their names in the usage of a chat."""
_COUNTED_APART: Final = frozenset({"web_search_calls", "file_search_calls", "mcp_calls"})
"""xAI counters that are not other tool calls: searches, counted separately, and MCP, billed by tokens only. What it
fetched from X it bills by the post and profile."""
_AT_NO_SURCHARGE: Final = frozenset({"standard", "global", "not_available"})
_SHORT: Final = ("ephemeral_5m_input_tokens", "ephemeral_30m_input_tokens", "ttl_30m_tokens")
_LONG: Final = ("ephemeral_1h_input_tokens", "ephemeral_12h_input_tokens", "ttl_12h_tokens")
"""Counters of cache writes: every provider known keeps them for a shorter or a longer, dearer time."""
_LIFETIMES: Final = frozenset({"ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"})
"""Anthropic's counters of cache writes whose prices are known."""
_BARE: Final = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""The only fields most servers send."""

Wire = Mapping[str, object]
T = TypeVar("T")


class MalformedUsage(ValueError):
    """The provider's usage object cannot be believed; the text names the field."""


def parse_openai_usage(wire: object, *, service_tier: object = None) -> Usage:
    """OpenAI's `usage` (chat, completions, embeddings, responses) and its dialects. Raises MalformedUsage."""
    if not isinstance(wire, dict):
        raise MalformedUsage("usage is not an object")
    usage = cast(Wire, wire)
    if len(usage) == len(_BARE) and _BARE.issuperset(usage):
        counts = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), _count(usage, "total_tokens")
        if counts[0] + counts[1] == counts[2] and usage["prompt_tokens"] is not None:  # else it may hide reasoning
            return Usage(input_tokens=counts[0], output_tokens=counts[1], service_tier=_tier(service_tier))
    charged_pico_usd = amount_charged(usage)
    if charged_pico_usd is not None and not usage.keys() & {"prompt_tokens", "input_tokens"}:
        return Usage(charged_pico_usd=charged_pico_usd)
    into = _details(usage, "prompt_tokens_details", "input_tokens_details")
    out = _details(usage, "completion_tokens_details", "output_tokens_details")
    ran = _details(usage, "server_side_tool_usage_details")
    reasoning_tokens = _count(out, "reasoning_tokens") or _count(usage, "reasoning_tokens")
    cached = _first(
        (into, "cached_tokens"),
        (usage, "prompt_cache_hit_tokens"),
        (usage, "cached_tokens"),
        (usage, "cache_read_input_tokens"),
    )
    write_5m, write_1h = _cache_writes(usage, into)
    input_tokens, output_tokens = _totals(usage, into, reasoning_tokens, (write_5m + write_1h, cached))
    if charged_pico_usd is not None and cached + write_5m + write_1h > input_tokens >= cached:
        write_5m, write_1h = input_tokens - cached, 0  # OpenRouter: Gemini reads what it has just written
    tier = _tier(service_tier) or tier_with_surcharges(usage)
    return checked(
        Usage(
            input_tokens,  # by position: Python collects more than fifteen keywords in a dictionary first
            cached,
            write_5m,
            write_1h,
            output_tokens=max(output_tokens, reasoning_tokens),
            reasoning_tokens=reasoning_tokens,
            audio_input_tokens=_count(into, "audio_tokens"),
            audio_output_tokens=_count(out, "audio_tokens"),
            image_input_tokens=_count(into, "image_tokens"),
            image_output_tokens=_count(out, "image_tokens"),
            service_tier="+".join(filter(None, (tier, unknown_lifetime(usage)))) or None,
            is_estimated=reasoning_tokens > output_tokens,
            web_searches=_first(
                (_details(usage, "server_tool_use"), "web_search_requests"),
                (into, "web_search_requests"),
                (usage, "num_search_queries"),
                (ran, "web_search_calls"),
                (part_of(part_of(usage, "plugins"), "search"), "count"),
                (part_of(part_of(usage, "x_tools"), "web_search"), "count"),
            ),
            file_searches=_first(
                (ran, "file_search_calls"), (part_of(part_of(usage, "x_tools"), "file_search"), "count")
            ),
            other_tool_calls=sum(
                _count(ran, name)
                for name in ran
                if name.endswith(("_calls", "_fetched")) and name not in _COUNTED_APART
            ),
            charged_pico_usd=charged_pico_usd,
        )
    )


def amount_charged(usage: Wire) -> int | None:
    """What the provider says that it charges, in pico-USD. Raises MalformedUsage."""
    if "cost_in_usd_ticks" in usage:
        return dollars(usage, "cost_in_usd_ticks", _PICO_PER_TICK)
    cost = usage.get("cost")
    if isinstance(cost, dict):
        parts = cast(Wire, cost)
        return dollars(parts, "total_cost", PICO_PER_USD) if parts.get("currency") == "USD" else None
    if "market_cost" in usage or "gateway_cost" in usage:
        return _charged_by_vercel(usage)
    charged = dollars(usage, "cost", PICO_PER_USD) if "is_byok" in usage else None
    if charged is None or not usage["is_byok"]:
        return charged
    elsewhere = dollars(_details(usage, "cost_details"), "upstream_inference_cost", PICO_PER_USD)
    return None if elsewhere is None else charged + elsewhere


def usage_in(said: Wire) -> object:
    """The usage of an answer or event. In formats other than chats Vercel's gateway tells beside it what it charges, as
    text, and what Anthropic told it of a cache."""
    usage, beside = said.get("usage"), part_of(said, "provider_metadata") or part_of(said, "providerMetadata")
    if not isinstance(usage, dict) or not beside:
        return usage
    told = cast(Wire, usage)
    charge = {name: _number(amount) for name, amount in part_of(beside, "gateway").items() if name in _VERCELS}
    if "cost" in charge:
        charge = {"gatewayCost": charge["cost"]} | charge
    own = part_of(part_of(beside, "anthropic"), "usage")
    is_of_same = own.get("input_tokens") == told.get("input_tokens")
    named = {_VERCELS[name]: amount for name, amount in charge.items()}
    return {**(own if is_of_same else {}), **told, **named}


def _number(amount: object) -> object:
    """The number that a text is; anything else as it came, which is malformed."""
    if not isinstance(amount, str):
        return amount
    try:
        return float(amount)
    except ValueError:
        return amount


def _charged_by_vercel(usage: Wire) -> int | None:
    charged, market = dollars(usage, "cost", PICO_PER_USD), dollars(usage, "market_cost", PICO_PER_USD)
    with_surcharges = dollars(usage, "gateway_cost", PICO_PER_USD)
    if not charged and market:
        return None
    return charged if with_surcharges is None else with_surcharges


def dollars(wire: Wire, field: str, pico_usd: int) -> int | None:
    """An amount in units of `pico_usd`; None if there is none. Raises MalformedUsage."""
    amount = wire.get(field)
    if amount is None:
        return None
    most = _MOST_DOLLARS * PICO_PER_USD / pico_usd
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount <= most:
        raise MalformedUsage(f"{field} is not an amount")
    return round(Decimal(str(amount)) * pico_usd)


def _tier(service_tier: object) -> str | None:
    return service_tier if isinstance(service_tier, str) and service_tier else None


def checked(usage: Usage) -> Usage:
    """The usage itself, if no part is larger than its whole. Raises MalformedUsage."""
    cache = usage.cached_input_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    if cache > usage.input_tokens:
        raise MalformedUsage("more cached tokens than input tokens")
    if usage.audio_input_tokens + usage.image_input_tokens > usage.input_tokens:
        raise MalformedUsage("more tokens of audio and images than input tokens")
    if usage.reasoning_tokens + usage.audio_output_tokens + usage.image_output_tokens > usage.output_tokens:
        raise MalformedUsage("more tokens of reasoning, audio and images than output tokens")
    return usage


def believable(parse: Callable[[T], Usage | None], wire: T | None) -> tuple[Usage | None, bool]:
    """(usage, whether one came that cannot be believed)."""
    try:
        return None if wire is None else parse(wire), False
    except MalformedUsage:
        return None, True


def parse_timings(wire: object) -> EngineTimings | None:
    """Our engine's `x_breakeven`; None unless both required figures are sane numbers."""
    if not isinstance(wire, dict):
        return None
    fields = cast(Wire, wire)
    gpu_seconds, queue_seconds = _figure(fields, "gpu_seconds"), _figure(fields, "queue_seconds")
    if gpu_seconds is None or queue_seconds is None:
        return None
    return EngineTimings(
        gpu_seconds=gpu_seconds,
        queue_seconds=queue_seconds,
        prefill_tokens_per_second=_figure(fields, "prefill_tokens_per_second"),
        decode_tokens_per_second=_figure(fields, "decode_tokens_per_second"),
        time_to_first_token_seconds=_figure(fields, "time_to_first_token_seconds"),
    )


def token_count(value: object, field: str) -> int:
    """A count off the wire; absent (None) is 0. Raises MalformedUsage naming the field."""
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TOKENS:
        raise MalformedUsage(f"{field} is not a token count")
    return value


def _count(wire: Wire, field: str) -> int:
    value = wire.get(field)
    if value is None:
        return 0
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else token_count(value, field)


def _first(*places: tuple[Wire, str]) -> int:
    """The first place that holds anything; every place is checked."""
    found = 0
    for wire, field in places:
        if field in wire:
            count = _count(wire, field)
            found = found or count
    return found


def _required(wire: Wire, *fields: str) -> int:
    for field in fields:
        if wire.get(field) is not None:
            return _count(wire, field)
    raise MalformedUsage(f"{fields[0]} is missing")


def _details(usage: Wire, *fields: str) -> Wire:
    for field in fields:
        details = usage.get(field)
        if isinstance(details, dict):
            return cast(Wire, details)
        if details is not None:
            raise MalformedUsage(f"{field} is not an object")
    return {}


def _cache_writes(usage: Wire, into: Wire) -> tuple[int, int]:
    """Cache writes kept for minutes, and for an hour or longer. Raises MalformedUsage."""
    if "cache_creation" not in usage and "cache_creation_input_tokens" not in usage and not into:
        return 0, 0
    split = _details(usage, "cache_creation") or _details(
        into, "cache_creation_token_details", "cache_write_tokens_details", "cache_creation"
    )
    write_5m, write_1h = (sum(_count(split, name) for name in names if name in split) for names in (_SHORT, _LONG))
    total = _first(
        (usage, "cache_creation_input_tokens"),
        *((into, name) for name in ("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")),
    )
    return split_writes(max(total, write_5m + write_1h), write_5m, write_1h)


def tier_with_surcharges(said: Wire) -> str | None:
    """What else a token's price depends on, from a usage or a request: `fast`, `us`, `fast+us` or a service tier."""
    asked = (_tier(said.get("speed")), _tier(said.get("inference_geo")))
    return "+".join(one for one in asked if one and one not in _AT_NO_SURCHARGE) or _tier(said.get("service_tier"))


def unknown_lifetime(usage: Wire) -> str | None:
    """A counter of cache writes that are kept neither for five minutes nor for an hour, if there were any. Part of the
    service tier, since nobody knows what they cost: as writes for five minutes they would be booked too cheaply."""
    split = usage.get("cache_creation")
    if not isinstance(split, dict):
        return None
    counted = ((name, count) for name, count in cast(Wire, split).items() if name not in _LIFETIMES)
    return next((name for name, count in counted if isinstance(count, int | float) and count > 0), None)


def split_writes(total: int, write_5m: int, write_1h: int) -> tuple[int, int]:
    """(5 minute, 1 hour) cache writes that add up to `total`. A stream reports the split at its start only, while the
    total includes later writes after each search. Those count as 1 hour if the whole start does, else as 5 minutes, as
    does everything if there is no split. Raises MalformedUsage."""
    if write_1h > total:
        raise MalformedUsage("more tokens cached for an hour than cached at all")
    return (0, total) if write_1h and not write_5m else (total - write_1h, write_1h)


def _totals(usage: Wire, into: Wire, reasoning_tokens: int, cache: tuple[int, int]) -> tuple[int, int]:
    """Input tokens with all of the `cache` (written, read) and output tokens with the reasoning, also for providers
    that count some of these separately: then `total_tokens` exceeds the other two."""
    input_tokens = _required(usage, "prompt_tokens", "input_tokens")
    output_tokens = _first((usage, "completion_tokens"), (usage, "output_tokens"))
    if cache[1] > input_tokens and "text_tokens" in into:
        return input_tokens + cache[1], output_tokens
    if reasoning_tokens > output_tokens and "market_cost" in usage:
        return input_tokens, output_tokens + reasoning_tokens
    total = _count(usage, "total_tokens") - _count(into, "tool_use_tokens")
    hidden = total - input_tokens - output_tokens
    if hidden <= 0 or "completion_tokens" not in usage:
        return input_tokens, output_tokens
    if hidden == reasoning_tokens or reasoning_tokens > output_tokens:
        return input_tokens, output_tokens + hidden
    if hidden in (cache[0], sum(cache), _count(into, "audio_tokens")):
        return input_tokens + hidden, output_tokens
    return input_tokens, output_tokens if reasoning_tokens else output_tokens + hidden


def _figure(wire: Wire, field: str) -> float | None:
    value = wire.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST_FIGURE else None
