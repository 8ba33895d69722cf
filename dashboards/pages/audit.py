"""Who changed what, and whether the record of it is whole."""

from html import escape

from dashboards import display, markup
from dashboards.frame import View, html, panel
from dashboards.markup import Cell, Column


async def build(view: View) -> None:
    """The chain's verdict, then its links."""
    checked = await view.gateway.get("/admin/v1/audit/verify")
    if checked["is_intact"]:
        whole = f"The chain of {checked['records']:,} records is intact, checked just now."
        html(f'<div class="be-banner" role="status">{whole}</div>')
    else:
        html(
            markup.message(
                "The audit log was altered",
                f"Record {checked['first_broken']} does not fit the chain: somebody changed the database by hand. "
                "Compare with a backup.",
                tone="bad",
            )
        )
    page = await view.gateway.get("/admin/v1/audit", before=view.query("before"), limit=50)
    if not page["records"]:
        html(markup.message("No changes yet", "Keys created, rules activated and the like are listed here."))
        return
    with panel("Changes", "Newest first, times in UTC."):
        html(
            markup.table(
                [
                    Column("#", is_number=True),
                    Column("Time"),
                    Column("Who"),
                    Column("Did"),
                    Column("What"),
                    Column("Why"),
                    Column("Digest"),
                ],
                [
                    [
                        str(one["sequence"]),
                        display.moment(one["at_us"])[:-4],
                        one["actor"],
                        one["action"],
                        Cell(one["subject"], is_code=True),
                        one["reason"] or display.UNKNOWN,
                        Cell(one["digest"][:12], is_code=True, title=one["digest"]),
                    ]
                    for one in page["records"]
                ],
                caption="Audit log",
            )
        )
        if page["next_before"] is not None:
            address = escape(f"/ui/audit?before={page['next_before']}")
            html(f'<div class="be-actions"><a href="{address}">Older changes</a></div>')
    first = next((one for one in page["records"] if one["detail"].startswith("---")), None)
    if first is not None:
        with panel("Last change of rules", f"Record {first['sequence']}, by {first['actor']}."):
            html(markup.diff(first["detail"]))
