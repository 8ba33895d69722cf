"""Who changed what, and whether the audit log is intact."""

from html import escape
from typing import Any

from dashboards import display, markup
from dashboards.audit_text import change_text
from dashboards.frame import View, html, panel
from dashboards.markup import Cell, Column

BOOKS = (
    "<code>breakeven verify</code> checks whether single requests and corrections add up to the sums of the reports; "
    "no page does, because it has to read them all."
)


async def build(view: View) -> None:
    """Whether the chain is intact, then its records."""
    html(_verdict(await view.gateway.get("/admin/v1/audit/verify")))
    page = await view.gateway.get("/admin/v1/audit", before=view.query("before"), limit=50)
    records: list[dict[str, Any]] = page["records"]
    if not records:
        html(markup.message("No changes yet", "Keys created, rules activated and the like are listed here."))
        return
    with panel("Changes", "Newest first, times in UTC."):
        html(_table(records, await key_names(view, sorted({one["subject"] for one in records}))))
        if page["next_before"] is not None:
            address = escape(f"audit?before={page['next_before']}")
            html(f'<div class="be-actions"><a href="{address}">Older changes</a></div>')
    first = next((one for one in records if one["detail"].startswith("---")), None)
    if first is not None:
        with panel("Last change of rules", f"Record {first['sequence']}, by {first['actor']}."):
            html(markup.diff(first["detail"]))


def _verdict(checked: dict[str, Any]) -> str:
    if checked["is_intact"]:
        whole = f"The chain of {markup.counted(checked['records'], 'record')} is intact, checked just now. {BOOKS}"
        return f'<div class="be-banner" role="status">{whole}</div>'
    return markup.message(
        "The audit log was altered",
        f"Record {checked['first_broken']} does not fit the chain: somebody changed the database by hand. "
        "Compare with a backup.",
        tone="bad",
    )


async def key_names(view: View, subjects: list[str]) -> dict[str, str]:
    """Names of the subjects that are keys, by id."""
    if not view.session.may("keys.read"):
        return {}
    found = await view.gateway.get("/admin/v1/keys", id=subjects, last_requests=False)
    return {one["id"]: one["name"] for one in found["keys"]}


def _table(records: list[dict[str, Any]], names: dict[str, str]) -> str:
    titles = ("Time", "Who", "Did", "What", "How", "Why", "Digest")
    rows = [
        [
            str(one["sequence"]),
            Cell(display.long_moment(one["at_us"]), tone="be-nowrap"),
            one["actor"],
            one["action"],
            Cell(names.get(one["subject"]) or one["subject"], title=one["subject"]),
            Cell(change_text(one["action"], one["detail"]), tone="be-words"),
            one["reason"] or display.UNKNOWN,
            Cell(one["digest"][:12], is_code=True, title=one["digest"]),
        ]
        for one in records
    ]
    return markup.table([Column("#", is_number=True), *map(Column, titles)], rows, caption="Audit log")
