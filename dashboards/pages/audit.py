"""Who changed what, and whether the record of it is whole."""

from html import escape

from dashboards import display, markup
from dashboards.audit_text import change_text
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
    names: dict[str, str] = {}
    if view.session.may("keys.read"):
        names = {one["id"]: one["name"] for one in (await view.gateway.get("/admin/v1/keys"))["keys"]}
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
                    Column("How"),
                    Column("Why"),
                    Column("Digest"),
                ],
                [
                    [
                        str(one["sequence"]),
                        Cell(display.moment(one["at_us"])[:-4], tone="be-nowrap"),
                        one["actor"],
                        one["action"],
                        Cell(names.get(one["subject"]) or one["subject"], title=one["subject"]),
                        change_text(one["action"], one["detail"]),
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
