"""One request: its price lines, attempts, latency and decision, and links to similar ones."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dashboards import display, markup
from dashboards.frame import View, grid, html, panel
from dashboards.markup import Cell, Column
from dashboards.pages.requests import TONES, clipped
from dashboards.periods import link, time_of

BESIDE_TOKENS = (
    ("Web searches", "web_searches"),
    ("File searches", "file_searches"),
    ("Other tool calls", "other_tool_calls"),
    ("Images drawn", "images"),
    ("Characters read aloud", "characters"),
    ("Searches ranked", "search_units"),
)
KINDS = {"reprice": "price", "refund": "refund", "reconciliation": "a provider's bill"}
NO_ATTEMPTS = {
    "completed": "No model was asked: the answer came from the response cache.",
    "cancelled": "Its caller left before any attempt had ended.",
    "failed": "The request ended before any model was asked.",
    "orphaned": "The process that served it died, so nothing is known of them.",
}


async def build_one(view: View) -> None:
    """Everything the ledger knows of one request."""
    request_id = view.query("id")
    if request_id is None:
        html(markup.message("Which request?", "Choose one from the list of requests."))
        return
    one = await view.gateway.get(f"/admin/v1/entries/{quote(request_id, safe='')}")
    html(
        markup.tiles(
            [
                markup.tile("Cost", display.exact_dollars(one["corrected_cost_usd"]), cost_note(one)),
                markup.tile(whose_model(one), one["model"], f"{one['backend']} · rule {one['rule']}"),
                markup.tile("Status", one["status"], _ending(one), tone=TONES[one["status"]]),
                markup.tile("Total time", display.seconds(_total_seconds(one)), display.moment(one["accepted_at_us"])),
            ]
        )
    )
    with grid("be-two"):
        with panel("Price lines", _of_lines(one["prices_version"]) if one["lines"] else ""):
            html(_lines(one))
        with panel("Where the time went"):
            html(latency(one))
    if one["corrections"]:
        with panel(
            "Corrections", "What was booked is never changed: corrections are added to it, and are in all sums."
        ):
            html(corrections_table(one))
    with panel("Attempts"):
        html(attempts_table(one))
    with panel("The decision"):
        html(decision_facts(one, await key_name(view, one["key_id"])))


async def key_name(view: View, key_id: str) -> str | None:
    if not view.session.may("keys.read", "team.read"):
        return None
    keys = (await view.gateway.get("/admin/v1/keys", id=key_id, last_requests=False))["keys"]
    return keys[0]["name"] if keys else None


def _of_lines(prices_version: str) -> str:
    return f"As booked at settlement, by price catalogue version {prices_version}. They add up to the cost exactly."


def _lines(one: dict[str, Any]) -> str:
    if not one["lines"]:
        return markup.message("No price lines", why_no_lines(one))
    *costs, total = display.exact_dollar_column([*(line["cost_usd"] for line in one["lines"]), one["cost_usd"]])
    rows: list[list[Cell | str]] = [
        [Cell(line["name"], tone="be-wraps"), display.count(line["tokens"]), cost]
        for line, cost in zip(one["lines"], costs, strict=True)
    ]
    rows.append([Cell("Total", tone="be-total"), "", total])
    table = markup.table(
        [Column("Class"), Column("Tokens", is_number=True), Column("Cost", is_number=True)], rows, caption="Price lines"
    )
    return table + markup.facts(
        [
            ("At list price", display.exact_dollars(one["list_cost_usd"])),
            *([("GPU time", f"{one['gpu_seconds']:.3f} s")] if one["gpu_seconds"] else []),
            *((what, display.count(one[name])) for what, name in BESIDE_TOKENS if one[name]),
            *([("Audio listened to", display.seconds(one["audio_seconds"]))] if one["audio_seconds"] else []),
        ]
    )


def why_no_lines(one: dict[str, Any]) -> str:
    if one["cost_usd"] is not None:
        return "Nothing was charged."
    if one["other_tool_calls"]:
        return "The provider ran tools for it, and no answer says what they cost."
    if one["corrections"]:
        return "Its price was not known when it was settled; see its corrections."
    if one["status"] == "orphaned":
        return "The process that served it died before it was settled: its cost lies within the bounds above."
    return "Its price was not known when it was settled. `breakeven prices reprice` books it once it is."


def corrections_table(one: dict[str, Any]) -> str:
    """From the cost at settlement, through each correction, to the cost now."""
    columns = [Column("Booked"), Column("What"), Column("For"), Column("Reason"), Column("Amount", is_number=True)]
    settled = display.NO_PRICE if one["cost_usd"] is None else one["cost_usd"]
    amounts = [settled, *(each["amount_usd"] for each in one["corrections"]), one["corrected_cost_usd"]]
    first, *booked, total = display.exact_dollar_column(amounts)
    rows: list[list[Cell | str]] = [["", "at settlement", "", "", first]]
    rows += [
        [
            Cell(display.moment(each["at_us"]), tone="be-nowrap"),
            KINDS[each["kind"]],
            clipped(each["reference"]),
            Cell(each["reason"], tone="be-wraps"),
            amount,
        ]
        for each, amount in zip(one["corrections"], booked, strict=True)
    ]
    rows.append([Cell("Corrected total"), "", "", "", total])
    return markup.table(columns, rows, caption="Corrections")


def whose_model(one: dict[str, Any]) -> str:
    """What the request's model did."""
    return "Answered by" if _has_answer(one) else "Asked last" if one["attempts"] else "Chosen"


def _has_answer(one: dict[str, Any]) -> bool:
    is_answered = any(each["outcome"] == "answered" for each in one["attempts"])
    return is_answered or one["status"] in ("completed", "partial")


def _total_seconds(one: dict[str, Any]) -> float | None:
    """Nobody knows when a process died."""
    return None if one["status"] == "orphaned" else one["total_seconds"]


def _no_first_token(one: dict[str, Any]) -> str:
    if one["status"] == "orphaned":
        return "unknown: the process that served it died"
    if not _has_answer(one):
        return "none: no answer came"
    return "not measured" if one["is_stream"] else "not measured: the answer was not streamed"


def latency(one: dict[str, Any]) -> str:
    first = one["time_to_first_token_seconds"]
    if first is None:
        total = display.seconds(_total_seconds(one))
        return markup.facts([("Total", total), ("First token", _no_first_token(one))])
    queue = one["queue_seconds"] or 0.0
    parts = [
        ("waiting in the queue", queue),
        ("prefill, to the first token", one["prefill_seconds"] or 0.0),
        ("decode, the rest", one["decode_seconds"] or 0.0),
    ]
    speeds = [
        ("Time to first token", display.seconds(first)),
        ("Decode speed", display.speed(one["decode_tokens_per_second"])),
    ]
    if one["prefill_tokens_per_second"] is not None:
        speeds.append(("Prefill speed", display.speed(one["prefill_tokens_per_second"])))
    bar = markup.shares_bar([(name, value, display.seconds(value)) for name, value in parts])
    return f"{bar}<br>{markup.facts(speeds)}"


def attempts_table(one: dict[str, Any]) -> str:
    if not one["attempts"]:
        return markup.message("No attempts", NO_ATTEMPTS.get(one["status"], ""))
    return markup.table(
        [
            Column("#", is_number=True),
            Column("Model"),
            Column("Backend"),
            Column("Outcome"),
            Column("Started after", is_number=True),
            Column("Answering or failed after", is_number=True, title="its first output, or its error, came after"),
            Column("HTTP", is_number=True),
            Column("Cost", is_number=True),
        ],
        [
            [
                str(each["number"]),
                each["model"],
                each["backend"],
                Cell(each["outcome"], tone="" if each["outcome"] == "answered" else "bad"),
                display.seconds(each["started_after_seconds"]),
                display.seconds(each["lasted_seconds"]),
                str(each["http_status"] or display.UNKNOWN),
                Cell("the request's", tone="muted", title="its price lines are above")
                if each["outcome"] == "answered"
                else display.dollars(each["cost_usd"]),
            ]
            for each in one["attempts"]
        ],
        caption="Attempts",
    )


def decision_facts(one: dict[str, Any], key_name: str | None) -> str:
    difficulty = "unknown" if one["difficulty"] is None else f"{one['difficulty']:.3f} ± {one['uncertainty'] or 0:.3f}"
    return markup.facts(
        [
            ("Request", [Cell(one["request_id"], is_code=True)]),
            ("Key", _like(one, "key_id", [one["key_id"]], key_name)),
            ("Team", _like(one, "team", [one["team"]])),
            ("Project", _like(one, "project", [one["project"]])),
            ("Tags", _like(one, "tag", one["tags"])),
            *([("Batch", _like(one, "batch_id", [one["batch_id"]]))] if one["batch_id"] else []),
            *([("End user", _like(one, "end_user", [one["end_user"]]))] if one["end_user"] else []),
            ("Rule", _like(one, "rule", [one["rule"]])),
            ("Operation", one["operation"]),
            ("Asked for", one["requested_model"]),
            ("Difficulty", difficulty),
            ("Candidates (quality)", _candidates(one)),
            ("Expected cost", display.exact_dollars(one["expected_cost_usd"])),
            ("Chosen with probability", f"{one['propensity']:.3f}"),
            ("Rules version", [_rules(one["rules_version"])]),
            ("Classifier version", one["classifier_version"]),
        ]
    )


def _candidates(one: dict[str, Any]) -> str:
    """Each with its predicted quality, in the order of the decision."""
    quality: dict[str, float] = one["predicted_quality"]
    names = one["candidates"]
    return ", ".join(f"{name} ({quality[name]:.2f})" if name in quality else name for name in names) or "none"


def _rules(version: str) -> Cell:
    """Links to the text of the rules, whose version comes first in `version`, if they were stored."""
    text, _, effect = version.partition("-")
    return Cell(version, is_code=True, href=f"rules?version={text}" if effect else None)


def _like(one: dict[str, Any], name: str, values: list[str | None], said: str | None = None) -> str | list[Cell]:
    """Values that each link to the requests of the same month that share it, with their cost."""
    month = time_of("month", f"{datetime.fromtimestamp(one['accepted_at_us'] / display.MILLION, UTC):%Y-%m}")
    cells = [Cell(said or value, href=link("/requests", month, **{name: value})) for value in values if value]
    return cells or display.NO_NAME


def _ending(one: dict[str, Any]) -> str:
    said = one["error"] or one["finish_reason"] or "no reason given"
    return f"HTTP {one['http_status']} · {said}" if one["http_status"] else said


def cost_note(one: dict[str, Any]) -> str:
    if one["corrections"]:
        booked = display.exact_dollars(one["cost_usd"])
        return f"booked at settlement: {booked}; corrections: {display.signed_dollars(one['corrections_usd'])}"
    if one["cost_lower_usd"] == one["cost_upper_usd"]:
        return "exact, as the provider counted" if one["cost_usd"] is not None else "see prices"
    return f"estimated: {display.dollars(one['cost_lower_usd'])} – {display.dollars(one['cost_upper_usd'])}"
