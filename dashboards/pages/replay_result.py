"""What an edit of the rules would have done to logged traffic, as markup. Pure."""

from decimal import Decimal
from html import escape
from typing import Any

from dashboards import display, markup
from dashboards.markup import Cell, Column


def replay_result(found: dict[str, Any]) -> str:
    """In words; then cost, quality and first token, before and after, and which requests moved."""
    if not found["requests"]:
        return markup.message(
            "No traffic to replay",
            "The ledger has no request in the last seven days. `breakeven demo FILE` sends some; Try it, on its own "
            "page, shows where one prompt goes under the active rules.",
        )
    notes = "".join(f"<li>{escape(note)}</li>" for note in found["notes"])
    return (
        f'<p class="be-verdict">{escape(in_words(found))}</p><br>'
        + markup.tiles(_tiles(found))
        + (_moves(found["moves"]) if found["moves"] else "")
        + (f'<ul class="be-caveats">{notes}</ul>' if notes else "")
    )


def in_words(found: dict[str, Any]) -> str:
    """What the edit does: how many requests go elsewhere, and what that costs."""
    moved, refused, unpriced = (found[f"{name}_requests"] for name in ("moved", "refused", "unpriced"))
    if not moved and not refused:
        return f"Your edit would send none of these {_requests(found['requests'])} elsewhere."
    said = [f"{moved:,} of {_requests(found['requests'])} would have gone to another model."]
    if refused:
        said.append(f"{_requests(refused)} would have been refused.")
    if unpriced:
        said.append(f"{_requests(unpriced)} {'has' if unpriced == 1 else 'have'} no known price, before or after.")
    left_out = refused + unpriced
    if left_out < found["requests"]:
        said.append(_cost_in_words(found, "All others cost" if left_out else "That costs"))
    return " ".join(said)


def _cost_in_words(found: dict[str, Any], what: str) -> str:
    before, after = Decimal(found["cost_before_usd"]), Decimal(found["cost_after_usd"])
    if before == after:
        return f"{what} {display.dollars(after)} as before."
    more = f"{display.dollars(abs(after - before))} {'more' if after > before else 'less'}"
    return f"{what} {more}: {display.dollars(after)} instead of {display.dollars(before)}."


def _tiles(found: dict[str, Any]) -> list[str]:
    return [
        markup.tile("Requests", display.count(found["requests"]), display.period(found["since"], found["until"])),
        markup.tile(
            "Moved",
            display.count(found["moved_requests"]),
            f"{display.share(found['moved_requests'] / found['requests'])} go elsewhere",
        ),
        _cost(found),
        markup.tile("Predicted quality", _plain(found["quality_after"]), f"was {_plain(found['quality_before'])}"),
        markup.tile(
            "First token, median",
            display.seconds(found["time_to_first_token_after_seconds"]),
            f"was {display.seconds(found['time_to_first_token_before_seconds'])}",
        ),
        markup.tile(
            "Refused",
            display.count(found["refused_requests"]),
            "no model may serve them",
            tone="bad" if found["refused_requests"] else "",
        ),
    ]


def _cost(found: dict[str, Any]) -> str:
    """Both sums are over the same requests: refused and unpriced ones are in neither."""
    before, after = Decimal(found["cost_before_usd"]), Decimal(found["cost_after_usd"])
    change = display.signed_share(float(after / before - 1)) if before else "nothing spent before"
    left_out = found["refused_requests"] + found["unpriced_requests"]
    tone = "" if before == after else "good" if after < before else "bad"
    note = f"was {display.dollars(before)} ({change})"
    return markup.tile(
        "Cost", display.dollars(after), f"{note}; without {_requests(left_out)}" if left_out else note, tone=tone
    )


def _moves(moves: list[dict[str, Any]]) -> str:
    columns = [
        Column("From"),
        Column("To"),
        Column("Requests", is_number=True),
        Column("Change of cost", is_number=True),
    ]
    rows = [
        [
            Cell(move["from_model"], tone="be-name"),
            Cell(move["to_model"], tone="be-name"),
            display.count(move["requests"]),
            _change(move),
        ]
        for move in moves
    ]
    return markup.table(columns, rows, caption="Where requests would move")


def _change(move: dict[str, Any]) -> Cell:
    unknown = move["unpriced_requests"]
    if unknown == move["requests"]:
        return Cell("unknown", tone="warn", title="no price is known for them")
    change = display.signed_dollars(move["cost_change_usd"])
    return Cell(f"{change}, {unknown:,} of them unknown" if unknown else change)


def _requests(count: int) -> str:
    return markup.counted(count, "request")


def _plain(value: float | None) -> str:
    return display.UNKNOWN if value is None else f"{value:.3f}"
