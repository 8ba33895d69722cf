"""Sources of price imports: the price maps inside the installed litellm and genai-prices packages."""

import importlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.errors import ConfigurationError
from gateway.extras import install_command, is_installed
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.genai_prices_map import PriceTable, Row, Tiered, convert_rows
from gateway.pricing.litellm_map import parse_litellm_map

Imported = dict[str, dict[str, ModelPrices]]
MALICIOUS_LITELLM = ("1.82.7", "1.82.8")
LITELLM_MAP = "model_prices_and_context_window_backup.json"
HINT = install_command("litellm")


def load_source(name: str, *, as_of: date) -> Imported:
    """`litellm` or `genai-prices`: provider -> model -> prices. Raises ConfigurationError if it is not installed."""
    if name == "litellm":
        return load_litellm(as_of=as_of)
    if name == "genai-prices":
        return load_genai_prices(as_of=as_of)
    raise ConfigurationError(f"prices can be imported from litellm or genai-prices, not from {name!r}")


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ConfigurationError(f"{package} is not installed: {HINT}") from error


def load_litellm(*, as_of: date) -> Imported:
    """Raises ConfigurationError."""
    text = _litellm_map()
    return parse_litellm_map(text, as_of=as_of, source=f"litellm {installed('litellm')}")


def known_to_litellm() -> Mapping[str, Mapping[str, Any]]:
    """What litellm's map says about each model; empty if litellm is not installed. Raises ConfigurationError."""
    return json.loads(_litellm_map()) if is_installed("litellm") else {}


def _litellm_map() -> str:
    """The map's text. litellm itself is never imported (it takes seconds, and two of its releases stole keys)."""
    found = installed("litellm")
    if found in MALICIOUS_LITELLM:
        raise ConfigurationError(f"litellm {found} is a malicious release: uninstall it and rotate this machine's keys")
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(f"litellm is not installed: {HINT}")
    return (Path(spec.submodule_search_locations[0]) / LITELLM_MAP).read_text(encoding="utf-8")


def load_genai_prices(*, as_of: date) -> Imported:
    """The package consists of data in Python modules, so importing it is safe and necessary."""
    found = installed("genai-prices")
    providers: list[Any] = importlib.import_module("genai_prices.data").providers
    rows = [
        row(provider.id, model) for provider in providers for model in provider.models if is_listed(provider, model)
    ]
    return convert_rows(rows, as_of=as_of, source=f"genai-prices {found}")


def is_listed(provider: Any, model: Any) -> bool:
    """False also for OpenRouter's hundreds of retired models, which have no context window."""
    return not model.deprecated and (provider.id != "openrouter" or model.context_window is not None)


def row(provider: str, model: Any) -> Row:
    records = model.prices if isinstance(model.prices, list) else [model.prices]
    constraints = [getattr(record, "constraint", None) for record in records]
    return Row(
        provider=provider,
        model=model.id,
        tables=[
            (start(of), table(getattr(record, "prices", record)))
            for record, of in zip(records, constraints, strict=True)
        ],
        variants=[
            (variant.when, start(variant.constraint), table(variant.prices)) for variant in model.price_variants or ()
        ],
        has_hours=any(hasattr(constraint, "start_time") for constraint in constraints),
    )


def start(constraint: Any) -> date | None:
    found: date | None = getattr(constraint, "start_date", None)
    return found


def table(prices: Any) -> PriceTable:
    return dict(tiered(prices))


def tiered(prices: Any) -> Iterator[tuple[str, Tiered]]:
    for key, price in vars(prices).items():
        if isinstance(price, Decimal):
            yield key, Tiered(price)
        elif price is not None:
            yield key, Tiered(price.base, tuple((tier.start, tier.price) for tier in price.tiers))
