"""`breakeven break-even`: whether owning the GPU pays at the ledger's traffic, and from what volume."""

import json
import sys

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson, Gpus, Since, Until, read
from gateway.cli.show_table import show_table
from gateway.cli.state import ask_reports
from gateway.counted import counted
from gateway.economics.report import BreakEvenReport
from gateway.money import show_usd
from gateway.reports.views import BreakEvenQuery


def command(
    since: Since = None,
    until: Until = None,
    backend: Gpus = None,
    against: str | None = typer.Option(None, help="The hosted model to compare with; the most used when left out."),
    gpu_hour_usd: float | None = typer.Option(None, min=0, help="What if the GPU hour cost this."),
    replicas: int | None = typer.Option(None, min=1, help="What if there were so many replicas."),
    volume: float = typer.Option(1.0, min=0.000001, help="What if there were so many times the traffic."),
    as_json: AsJson = False,
) -> None:
    """Compare GPUs of your own with a hosted model on the ledger's traffic: the verdict, the staircase, the odds."""
    query = read(
        BreakEvenQuery,
        since=since,
        until=until,
        backend=backend,
        hosted_model=against,
        gpu_hour_usd=gpu_hour_usd,
        replicas=replicas,
        volume_factor=volume,
    )
    view = ask_reports(lambda services: services.gpus.break_even(query))
    if as_json:
        sys.stdout.write(json.dumps(json.loads(msgspec.json.encode(view.report)), indent=2) + "\n")
    else:
        show(view.report, Console(highlight=False))


def show(report: BreakEvenReport, console: Console) -> None:
    """The verdict, the staircase, the idle line, and the caveats."""
    console.print(report.verdict + "\n")
    steps = Table(
        "replicas", "what its last replica earns", "its rent", "pays", "month in all",
        title=f"{report.plan} against {report.hosted}, in a month of {report.month.hours:g} hours",
    )  # fmt: skip
    for row in report.staircase:
        total = row.overflow_total_usd if row.overflow_total_usd is not None else row.fluid_total_usd
        steps.add_row(
            str(row.replicas), show_usd(row.value_usd), show_usd(row.rent_usd), "yes" if row.pays else "no",
            show_usd(total),
        )  # fmt: skip
    show_table(steps)
    owned = report.owned
    console.print(
        f"Rent of {counted(owned.paid_hours, 'hour')}{'' if owned.is_measured else ' at this price'}: "
        f"{show_usd(owned.rent_usd)}, of which idle {show_usd(owned.idle_usd)}: "
        f"it {'computed' if owned.is_measured else 'would compute'} {owned.busy_share:.2%} of the time, "
        f"for {owned.utilisation:.2%} of what it can do."
    )
    for caveat in report.caveats:
        console.print(f"- {caveat}")
