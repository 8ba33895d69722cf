"""The catalogue as routing sees it, and every dated price behind it."""

import re
from decimal import Decimal
from html import escape
from typing import Any

from dashboards import display, markup
from dashboards.frame import View, html, panel
from dashboards.markup import Cell, Column

PRICES = 100
ADDRESS = re.compile(r"https?://([^/\s]+)\S*")

NO_SUCH_MODEL = markup.message("No such model", "Try a shorter name.")


async def build(view: View) -> None:
    """Models first, then prices with their dates."""
    wanted = view.query("containing") or ""
    field = (
        '<label class="be-field">Provider or model contains'
        f'<input name="containing" value="{escape(wanted)}" maxlength="120"></label>'
    )
    html(markup.filters("models", field, button="Search"))
    models = named_like((await view.gateway.get("/admin/v1/models"))["models"], wanted)
    with panel("Models", "List prices in US dollars per million tokens, of an ordinary short request now."):
        html(_models(models) if models else NO_SUCH_MODEL)
    prices = await view.gateway.get("/admin/v1/prices", containing=wanted, limit=PRICES)
    note = (
        f"Catalogue version {prices['version']}. {listed(len(prices['models']), prices['total'], wanted)} "
        "A price is never overwritten: a new one is added with its date."
    )
    with panel("Prices", note):
        html(_prices(prices["models"]) if prices["models"] else NO_SUCH_MODEL)


def named_like(models: list[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """Models with `wanted` in their backend or name, ignoring case."""
    return [one for one in models if wanted.casefold() in f"{one['backend']}/{one['name']}".casefold()]


def listed(shown: int, total: int, wanted: str = "") -> str:
    """How many models match `wanted`, and how to find those that are not shown."""
    there_are = markup.counted(total, "model") + (f" with {wanted!r} in provider or name" if wanted else "")
    if shown == total:
        return f"{there_are}." if wanted else f"{there_are} in all."
    return f"The first {shown:,} of {there_are}; a search finds the others."


def _models(models: list[dict[str, Any]]) -> str:
    rows = [
        [
            Cell(one["name"], tone="be-name"),
            one["backend"],
            Cell("loading", tone="warn")
            if one["is_starting"]
            else Cell("down", tone="bad")
            if one["is_down"]
            else Cell(_kind(one), tone="warn" if one["is_simulated"] else ""),
            display.tokens(one["context_window"]),
            Cell(", ".join(one["supports"]), tone="be-words"),
            one["input_usd_per_mtok"],
            one["cached_input_usd_per_mtok"],
            one["output_usd_per_mtok"],
            each(one),
            priced_since(one),
        ]
        for one in models
    ]
    columns = [
        Column("Model"),
        Column("Backend"),
        Column("Kind"),
        Column("Window", is_number=True, title="tokens"),
        Column("Supports"),
        Column("Input", is_dollars=True),
        Column("Cached", is_dollars=True),
        Column("Output", is_dollars=True),
        Column("Each", title="of what is billed beside tokens"),
        Column("Price since · source"),
    ]
    return markup.table(columns, rows, caption="Models of the catalogue")


def priced_since(one: dict[str, Any]) -> str | Cell:
    """What its own GPU costs by the hour, or the day and the source of its price."""
    if one["gpu_hour_usd"]:
        return f"{display.rate(one['gpu_hour_usd'])} / GPU hour"
    if one["price_from"]:
        return " · ".join([display.day(one["price_from"]), one["price_source"], *terms(one)])
    return Cell("no price known", tone="bad")


def terms(one: dict[str, Any]) -> list[str]:
    """What is negotiated on a list price: `you pay 12 % less`."""
    discount = 100 * Decimal(one["discount"])
    return [f"you pay {abs(discount.normalize()):f} % {'less' if discount > 0 else 'more'}"] if discount else []


def each(one: dict[str, Any]) -> str:
    """What an image, a second or a character costs: `$0.02 per image`. It may wrap: on one line it pushed the sources
    out of a laptop's window."""
    return ", ".join(f"${usd} {name}" for name, usd in one["usd_each"].items())


def _kind(one: dict[str, Any]) -> str:
    if one["is_simulated"]:
        return "simulated"
    if one["is_local"]:
        return "own GPU" + (f", {one['free_slots']} slots free" if one["free_slots"] is not None else "")
    return "hosted"


def cited(source: str) -> str:
    """A source with only the site of its addresses: a full one would wrap anywhere in a narrow column."""
    return ADDRESS.sub(r"\1", source)


def _prices(models: list[dict[str, Any]]) -> str:
    rows = [
        [
            Cell(f"{one['provider']}/{one['model']}" if index == 0 else "", title=price["note"], tone="be-name long"),
            Cell(display.day(price["from_date"]), tone="be-nowrap"),
            price["input_usd_per_mtok"],
            price["cached_input_usd_per_mtok"],
            price["output_usd_per_mtok"],
            each(price),
            Cell("by length" if price["has_tiers"] else "", tone="be-nowrap", title="of the input"),
            Cell(" · ".join([cited(price["source"]), *terms(price)]), tone="be-source", title=price["source"]),
        ]
        for one in models
        for index, price in enumerate(one["history"])
    ]
    columns = [
        Column("Model"),
        Column("From"),
        Column("Input, $ / M", is_dollars=True),
        Column("Cached, $ / M", is_dollars=True),
        Column("Output, $ / M", is_dollars=True),
        Column("Each", title="of what is billed beside tokens"),
        Column("Tiers"),
        Column("Source"),
    ]
    return markup.table(columns, rows, caption="Dated prices")
