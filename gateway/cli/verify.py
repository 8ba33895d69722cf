"""`breakeven verify`: checks that requests and corrections add up to the sums of the reports. Changes nothing but, with
`--repair`, what budgets count of end users."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson, period_us
from gateway.cli.show_table import show_table
from gateway.cli.state import AUTHOR, State, ask
from gateway.counted import counted
from gateway.limits.spending import FOR_EVER_US
from gateway.money import format_usd, show_exact_usd
from gateway.storage.repair import repair_end_users
from gateway.storage.sql.audit import SqlAuditLog
from gateway.storage.sums.verification import Mismatch, VerifiedDay, verify_sums
from gateway.stores import Verified

MOST_SHOWN = 40
COMPARED = {
    "requests": "single requests",
    "corrections": "corrections",
    "hours": "sums of its hours",
    "end users": "requests of end users",
}
WHAT_TO_DO = (
    "Something other than Breakeven changed the database, or its file is damaged: find out what writes there, or "
    "restore a backup (docs/deploy.md)."
)
ONLY_END_USERS = (
    "But what budgets count of end users differs. A replica of a version before 2026-11-28 that booked beside an "
    "upgrade left its requests out of it: once it is gone, `breakeven verify --repair` adds them up again. Without "
    "such an upgrade:"
)


@dataclass(slots=True)
class Report:
    """What was read. `first` and `last` are None if there was nothing."""

    first: date | None = None
    last: date | None = None
    days: int = 0
    requests: int = 0
    corrections: int = 0
    cost_pico_usd: int = 0
    forgotten_days: int = 0
    repaired_days: int = 0
    mismatches: list[tuple[date, Mismatch]] = field(default_factory=list[tuple[date, Mismatch]])
    audit: Verified | None = None

    @property
    def is_right(self) -> bool:
        return not self.mismatches and (self.audit is None or self.audit.is_intact)

    @property
    def is_only_of_end_users(self) -> bool:
        """Whether what does not add up is in no report."""
        return {one.compared for _, one in self.mismatches} == {"end users"}

    def add(self, day: VerifiedDay) -> None:
        """Days come in order."""
        self.first, self.last = self.first or day.day, day.day
        self.days += 1
        self.requests += day.requests
        self.corrections += day.corrections
        self.cost_pico_usd += day.cost_pico_usd
        self.forgotten_days += day.is_forgotten
        self.mismatches += ((day.day, one) for one in day.mismatches)


def command(
    since: str | None = typer.Option(None, "--since", "--from", help="A UTC day, 2026-10-01; the first when left out."),
    until: str | None = typer.Option(None, "--until", "--to", help="A UTC day, exclusive; the last when left out."),
    is_repairing: bool = typer.Option(
        False, "--repair", help="Where only what budgets count of end users differs, add that up again."
    ),
    as_json: AsJson = False,
) -> None:
    """Add up single requests and corrections, day by day, and compare them with the sums that every report is made of;
    also check the audit log's chain. Exits with status 1 if something does not add up. Can run beside the gateway."""
    period = period_us(since, until, FOR_EVER_US)
    report = ask(lambda state: _verify(state, *period, is_repairing=is_repairing), is_looking=True)
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        console = Console(highlight=False)
        if report.mismatches:
            show_table(_table(report.mismatches[:MOST_SHOWN]))
        for sentence in sentences(report):
            console.print(sentence, markup=False)
    if not report.is_right:
        raise typer.Exit(1)


async def _verify(state: State, since_us: int, until_us: int, *, is_repairing: bool) -> Report:
    report, waiting = Report(), Console(stderr=True)
    with waiting.status("Reading the books") as shown:
        async for day in verify_sums(state.database, since_us, until_us):
            if is_repairing and day.is_only_of_end_users:
                await repair_end_users(state.database, day.day, author=AUTHOR)
                report.repaired_days += 1
                day = replace(day, mismatches=())
            report.add(day)
            shown.update(f"Reading the books: {day.day}")
        report.audit = await SqlAuditLog(state.database).verify()
    return report


def sentences(report: Report) -> Iterator[str]:
    """What a person is told."""
    if report.first is None:
        yield "There is no request in this period."
    else:
        adds_up = not report.mismatches or report.is_only_of_end_users
        are = "add up to the sums of the reports" if adds_up else "do not add up to the sums of the reports"
        yield (
            f"{counted(report.days, 'day')} with requests, {report.first} to {report.last}: "
            f"{counted(report.requests, 'request')} and {counted(report.corrections, 'correction')} {are}, "
            f"{show_exact_usd(format_usd(report.cost_pico_usd))}."
        )
    if report.forgotten_days:
        forgotten = counted(report.forgotten_days, "day")
        yield f"Retention has deleted the single requests of {forgotten}: only their sums are left."
    if report.repaired_days:
        days = counted(report.repaired_days, "day")
        yield f"What budgets count of end users did not, on {days}, and has been added up again."
    if len(report.mismatches) > MOST_SHOWN:
        yield f"{len(report.mismatches):,} figures do not add up; the first {MOST_SHOWN} are shown, --json has all."
    audit = report.audit
    if audit is not None and audit.is_intact:
        yield f"The audit log's {audit.records:,} records follow one another unbroken."
    elif audit is not None:
        yield f"The audit log was changed: record {audit.first_broken} does not follow from the one before it."
    if report.is_only_of_end_users:
        yield ONLY_END_USERS
    if not report.is_right:
        yield WHAT_TO_DO


def _table(mismatches: list[tuple[date, Mismatch]]) -> Table:
    table = Table(
        "day", "compared", "figure", "come to", "the sums say", "places", title="What does not add up", box=None
    )
    for day, one in mismatches:
        row = (COMPARED[one.compared], one.figure, f"{one.come_to:,}", f"{one.sums_say:,}", str(one.places))
        table.add_row(str(day), *row)
    return table


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "ok": report.is_right,
        "first_day": report.first and str(report.first),
        "last_day": report.last and str(report.last),
        "days": report.days,
        "forgotten_days": report.forgotten_days,
        "repaired_days": report.repaired_days,
        "requests": report.requests,
        "corrections": report.corrections,
        "cost_usd": format_usd(report.cost_pico_usd),
        "mismatches": [{"day": str(day), **asdict(one)} for day, one in report.mismatches],
        "audit_log": report.audit and asdict(report.audit),
    }
