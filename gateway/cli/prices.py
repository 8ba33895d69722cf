"""`breakeven prices`: look at the dated catalogue, bring it up to date, and re-price past requests."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.options import ClockIsRight, Until, period_us
from gateway.cli.show_table import show_table
from gateway.cli.state import State, ask
from gateway.clock import now_us
from gateway.config.home import find_home
from gateway.config.price_files import SHIPPED, load_deployment_prices, load_prices, own_prices, write_prices
from gateway.config.price_sources import load_source
from gateway.config.settings import Settings, load_settings
from gateway.counted import counted
from gateway.errors import ConfigurationError
from gateway.instants import start_of_day_us
from gateway.money import format_usd, show_exact_usd
from gateway.pricing.catalogue import ModelPrices, PriceBook, ProviderPrices
from gateway.pricing.price_figures import figures, is_each, terms_text, tool_figures
from gateway.pricing.price_update import Change, append, compare, describe
from gateway.pricing.price_yaml import decimal_text
from gateway.reports.reprice_service import RepricedModel, RepriceQuery, Repricing, reprice_period
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.sums import SumsQuery

app = typer.Typer(no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Source = Annotated[str, typer.Option("--from", help="litellm or genai-prices (from their installed packages).")]
OneProvider = Annotated[str | None, typer.Option("--provider", help="Only this provider's prices.")]
Directory = Annotated[
    Path | None,
    typer.Option("--directory", help="Where price files are kept (default: `prices` under BREAKEVEN_HOME)."),
]


@app.command("list")
def list_prices(provider: OneProvider = None, as_json: AsJson = False) -> None:
    """Every model with a price today, in USD per million tokens."""
    book, at_us = deployment_book(), now_us()
    rows = [
        (name, model, prices)
        for name, model in book.models(provider)
        if (prices := book.lookup(name, model, at_us)) is not None
    ]
    if as_json:
        return print_json({"version": book.version, "models": [summary(*row) for row in rows]})
    table = Table(
        "provider", "model", "input", "cached", "output", "fees", "discount", "from",
        title=f"List prices {book.version}, USD per million tokens (fees: each); your discount is off all of them",
    )  # fmt: skip
    for name, model, prices in rows:
        text, discount = dict(figures(prices)), f"{decimal_text(100 * prices.discount)}%" if prices.discount else ""
        fees = ", ".join(f"{usd} {figure}" for figure, usd in text.items() if is_each(figure))
        table.add_row(
            name, model, text["input"], text.get("cached_input", ""), text["output"], fees, discount, prices.from_date
        )
    return show_table(table)


@app.command()
def show(model: Annotated[str, typer.Argument(help="MODEL or PROVIDER/MODEL.")], as_json: AsJson = False) -> None:
    """A model's whole price history."""
    book = deployment_book()
    found = [(name, known, book.history(name, known)) for name, known in matching(book, model)]
    if not found:
        raise ConfigurationError(f"no price is known for {model!r}; `breakeven prices list` shows what is")
    if as_json:
        return print_json([summary(name, known, prices) for name, known, history in found for prices in history])
    for name, known, history in found:
        for prices in history:
            table = Table(
                "USD per million tokens (fees: each)",
                "",
                title=f"{name} {known} from {prices.from_date}",
                caption=prices.note or None,
            )
            for figure, text in (*figures(prices), *tool_figures(prices)):
                table.add_row(figure, text)
            if terms := terms_text(prices.discount):
                table.add_row("your terms", terms)
            table.add_row("source", prices.source)
            show_table(table)
    return None


@app.command()
def diff(source: Source, provider: OneProvider = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show where another source's prices differ; writes nothing."""
    changes = differences(source, provider, directory)[1]
    if as_json:
        return print_json([change_row(change) for change in changes])
    return print_changes(changes)


@app.command("import")
def import_prices(
    source: Source,
    provider: OneProvider = None,
    directory: Directory = None,
    yes: Annotated[bool, typer.Option("--yes", help="Accept the changes without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Append another source's prices to the catalogue, after showing the difference and asking."""
    files, changes = differences(source, provider, directory)
    written = [change for change in changes if change.is_written]
    if not as_json:
        print_changes(changes)
    if written and not yes:
        if as_json:
            raise ConfigurationError("--json cannot ask first: add --yes, or look at `breakeven prices diff`")
        typer.confirm(f"Append {counted(len(written), 'price')}?", abort=True)
    today = datetime.now(UTC).date()
    try:
        updated = append(files, written, as_of_us=start_of_day_us(today), undated_us=undated_us(today))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    paths = [write_prices(directory or own_prices(find_home()), file) for file in updated]
    if as_json:
        return print_json(
            {"changes": [change_row(change) for change in changes], "files": [str(path) for path in paths]}
        )
    return print("\n".join(f"wrote {path}" for path in paths) or "Nothing to write.")


@app.command("reprice")
def reprice_past(
    since: Annotated[str, typer.Option("--since", "--from", help="ISO 8601.")],
    until: Until = None,
    provider: OneProvider = None,
    model: Annotated[str | None, typer.Option(help="Only this model, by its provider's name for it.")] = None,
    only_unpriced: Annotated[bool, typer.Option("--only-unpriced", help="Only requests that had no price.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Book them; without it, only say what would be booked.")] = False,
    clock_is_right: ClockIsRight = False,
    as_json: AsJson = False,
) -> None:
    """Price past requests again whose price was unknown or has been corrected since.

    Differences are booked as corrections, each once; what was booked is never rewritten.
    """
    query = RepriceQuery(*period_us(since, until, now_us()), provider, model, only_unpriced)
    author = "breakeven prices reprice" if yes else None

    async def reprice(state: State) -> tuple[Repricing, int]:
        """Also says how many requests are in the sums alone. They are counted first: more may be shipped meanwhile."""
        sums = await state.reports.sums(SumsQuery(query.since_us, query.until_us, money_alone=True))
        store = SqlAdjustments(state.database, trusts_clock=clock_is_right)
        found = await reprice_period(query, state.ledger, store, state.deployment.prices, author=author)
        return found, max(0, sum(one.requests for one in sums) - found.read)

    found, deleted = ask(reprice)
    total, rows = format_usd(found.difference_pico_usd), found.models
    if as_json:
        models = [repriced_row(row) for row in rows]
        said = {"requests": found.requests, "difference_usd": total, "booked": found.booked}
        return print_json({**said, "deleted_requests": deleted, "models": models})
    table = Table("provider", "model", "why", "requests", "was $", "is $", "difference $", box=None)
    for row in rows:
        table.add_row(*repriced_row(row).values())
    if rows:
        show_table(table)
    more = " Add --yes to book." if rows and not yes else ""
    repriced, booked = counted(found.requests, "request"), counted(found.booked, "correction")
    print(f"{repriced}, {show_exact_usd(total)}; {booked} booked.{more}")
    if deleted:
        print(f"{counted(deleted, 'request')} of this time cannot be priced again: retention has kept only their sums.")
    return None


def repriced_row(row: RepricedModel) -> dict[str, str]:
    return {
        "provider": row.provider,
        "model": row.upstream_model,
        "why": row.why,
        "requests": str(row.requests),
        "was_usd": format_usd(row.was_pico_usd),
        "now_usd": format_usd(row.now_pico_usd),
        "difference_usd": format_usd(row.now_pico_usd - row.was_pico_usd),
    }


def differences(source: str, provider: str | None, directory: Path | None) -> tuple[list[ProviderPrices], list[Change]]:
    """The catalogue's files and what `source` says otherwise."""
    files = current_files(directory)
    imported = load_source(source, as_of=datetime.now(UTC).date())
    if provider is not None and provider not in imported:
        raise ConfigurationError(f"{source} has no prices of {provider!r}; it has {', '.join(sorted(imported))}")
    chosen = {name: models for name, models in imported.items() if provider in (None, name)}
    return files, compare(files, chosen, at_us=now_us())


def current_files(directory: Path | None) -> list[ProviderPrices]:
    if directory is not None:
        return list(load_prices(directory))
    files = {file.provider: file for file in load_prices(SHIPPED)}
    own = own_prices(find_home())
    return list((files | {file.provider: file for file in load_prices(own)}).values())


def undated_us(as_of: date) -> int:
    """Prices without a date of their own hold from the start of the billing month they were seen in."""
    return start_of_day_us(as_of.replace(day=1))


def deployment_book() -> PriceBook:
    home = find_home()
    settings = load_settings(home) if home.config_file.exists() else Settings()
    return load_deployment_prices(home, settings)


def matching(book: PriceBook, model: str) -> list[tuple[str, str]]:
    providers = sorted({provider for provider, _ in book.models()})
    pairs = [(provider, name) for provider in providers for name in (model, model.removeprefix(f"{provider}/"))]
    return [pair for pair in dict.fromkeys(pairs) if book.history(*pair)]


def summary(provider: str, model: str, prices: ModelPrices) -> dict[str, Any]:
    return {
        "provider": provider,
        "model": model,
        "from": prices.from_date,
        "source": prices.source,
        "note": prices.note,
        "discount": decimal_text(prices.discount),
        "usd_per_mtok": {name: text for name, text in figures(prices) if not is_each(name)},
        "usd_each": {name: text for name, text in (*figures(prices), *tool_figures(prices)) if is_each(name)},
    }


def change_row(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind.value,
        "provider": change.provider,
        "model": change.model,
        "differences": describe(change),
    }


def print_changes(changes: list[Change]) -> None:
    if not changes:
        return print("No difference.")
    table = Table("", "provider", "model", "USD per million tokens")
    for change in changes:
        table.add_row(change.kind.value, change.provider, change.model, "\n".join(shown(change)))
    return show_table(table)


def shown(change: Change) -> Iterator[str]:
    if change.before is not None and change.after is not None:
        yield from describe(change)
    elif change.after is not None:
        yield from (
            f"{name} {text}"
            for name, text in figures(change.after)
            if name in ("input", "cached_input", "output") or is_each(name)
        )


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
