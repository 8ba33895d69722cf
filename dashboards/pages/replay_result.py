"""What an edit of the rules would have done to logged traffic, as markup. Pure."""

from html import escape
from typing import Any

from dashboards import display, markup
from dashboards.markup import Column


def replay_result(found: dict[str, Any]) -> str:
    """Dollars, quality, first token and who moved, before and after."""
    if not found["requests"]:
        return markup.message("No traffic to replay", "The ledger has no request in the last seven days.")
    before, after = float(found["cost_before_usd"]), float(found["cost_after_usd"])
    change = f"{100 * (after / before - 1):+.1f} %" if before else "no spend before"
    tiles = [
        markup.tile("Requests", display.count(found["requests"]), display.period(found["since"], found["until"])),
        markup.tile(
            "Moved",
            display.count(found["moved_requests"]),
            f"{display.share(found['moved_requests'] / found['requests'])} go elsewhere",
        ),
        markup.tile(
            "Cost",
            display.dollars(found["cost_after_usd"]),
            f"was {display.dollars(found['cost_before_usd'])} ({change})",
            tone="good" if after < before else "bad" if after > before else "",
        ),
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
    moves = markup.table(
        [
            Column("From"),
            Column("To"),
            Column("Requests", is_number=True),
            Column("Change of cost", is_number=True),
        ],
        [
            [
                move["from_model"],
                move["to_model"],
                display.count(move["requests"]),
                display.dollars(move["cost_change_usd"]),
            ]
            for move in found["moves"]
        ],
        caption="Where requests would move",
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in found["notes"])
    return (
        markup.tiles(tiles)
        + (moves if found["moves"] else "")
        + (f'<ul class="be-caveats">{notes}</ul>' if notes else "")
    )


def _plain(value: float | None) -> str:
    return display.UNKNOWN if value is None else f"{value:.3f}"
