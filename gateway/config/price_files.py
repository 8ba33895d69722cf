"""Reads the price catalogue from disk: the shipped files in gateway/pricing/data, and the deployment's own."""

import os
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from gateway.config.home import Home
from gateway.config.settings import Settings, read_text
from gateway.errors import ConfigurationError, StateError
from gateway.pricing.catalogue import Override, PriceBook, ProviderPrices
from gateway.pricing.price_text import parse_overrides, parse_prices
from gateway.pricing.price_yaml import format_prices
from gateway.whole_file import write_whole

SHIPPED = Path(str(files("gateway.pricing"))) / "data"


def load_prices(directory: Path = SHIPPED, *, providers: Iterable[str] | None = None) -> tuple[ProviderPrices, ...]:
    """Price files of all providers in `directory`, or of `providers` only; a provider without a file is left out.

    Raises ConfigurationError with file, line and field.
    """
    wanted = None if providers is None else set(providers)
    paths = sorted(path for path in directory.glob("*.yaml") if wanted is None or path.stem in wanted)
    return tuple(parse_prices(read_text(path), os.path.relpath(path)) for path in paths)


def load_overrides(path: Path) -> tuple[Override, ...]:
    """A deployment's negotiated terms. Raises ConfigurationError."""
    return parse_overrides(read_text(path), os.path.relpath(path))


def load_price_book(
    *,
    own_directory: Path | None = None,
    overrides: Sequence[Path] = (),
    providers: Iterable[str] | None = None,
) -> PriceBook:
    """The catalogue with a deployment's own terms applied.

    A provider's file in `own_directory` (where `breakeven prices import` writes) replaces the shipped one.
    """
    files = {file.provider: file for file in load_prices(providers=providers)}
    if own_directory is not None:
        files |= {file.provider: file for file in load_prices(own_directory, providers=providers)}
    book = PriceBook(files.values())
    return book.with_overrides([term for path in overrides for term in load_overrides(path)]) if overrides else book


def load_deployment_prices(home: Home, settings: Settings) -> PriceBook:
    """What this deployment pays: the shipped catalogue, its own imports and its negotiated terms."""
    paths = [home.root / Path(name).expanduser() for name in settings.price_overrides]
    book = load_price_book(own_directory=own_prices(home), overrides=paths)
    for path in paths:
        _require_prices(book, load_overrides(path), os.path.relpath(path))
    return book


def _require_prices(book: PriceBook, terms: Sequence[Override], file: str) -> None:
    """Raises ConfigurationError for terms without effect, because no price exists that they change."""
    for index, term in enumerate(terms):
        if term.model is None and not book.models(term.provider):
            known = ", ".join(sorted({provider for provider, _ in book.models()}))
            problem = f"no price of the provider {term.provider!r} is known; known: {known}"
        elif term.model is not None and not book.history(term.provider, term.model):
            problem = (
                f"no price of {term.provider}'s {term.model!r} is known for the discount: give `prices`, or see "
                "`breakeven prices list` for the name"
            )
        else:
            continue
        raise ConfigurationError(problem, file=file, field=f"overrides.{index}")


def own_prices(home: Home) -> Path:
    """Where a deployment keeps imported price files."""
    return home.root / "prices"


def write_prices(directory: Path, file: ProviderPrices) -> Path:
    """Replaces a provider's file atomically. Raises StateError."""
    path = directory / f"{file.provider}.yaml"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(path, format_prices(file).encode())
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}") from error
    return path
