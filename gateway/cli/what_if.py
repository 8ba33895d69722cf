"""`breakeven what-if`: what it would cost to rent GPUs that we do not have, for a model that we do not serve yet."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson, Since, Until, read
from gateway.cli.show_table import show_table
from gateway.cli.state import ask_reports
from gateway.errors import InvalidRequest
from gateway.reports.what_if_views import WhatIfQuery, WhatIfView


def command(
    gpu: Annotated[str | None, typer.Option(help="A GPU of the table; all when left out.")] = None,
    model: Annotated[str | None, typer.Option(help="A model of the table; all when left out.")] = None,
    gpus_per_replica: Annotated[int, typer.Option(min=1, max=64, help="GPUs that one copy of the model needs.")] = 1,
    replicas: Annotated[int, typer.Option(min=1, max=100, help="Copies of the model.")] = 1,
    moved: Annotated[str | None, typer.Option(help="Only the traffic of these models moves; comma separated.")] = None,
    against: Annotated[str | None, typer.Option(help="The hosted model to compare with.")] = None,
    since: Since = None,
    until: Until = None,
    fixed_usd: Annotated[float, typer.Option(min=0, help="Fixed costs a month besides rent.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Compare rented GPUs with a hosted model on the ledger's traffic. GPUs and models are those of gpu_table.yaml in
    BREAKEVEN_HOME, or of the shipped table."""
    query = read(
        WhatIfQuery,
        gpu=gpu,
        model=model,
        gpus_per_replica=gpus_per_replica,
        replicas=replicas,
        moved=moved,
        hosted_model=against,
        since=since,
        until=until,
        fixed_usd_per_month=fixed_usd,
    )
    view = ask_reports(lambda services: services.what_ifs.what_if(query))
    if as_json:
        print(view.model_dump_json(indent=2))
    elif view.answers:
        show(view, Console(highlight=False))
    else:
        raise InvalidRequest(why_nothing(view))


def show(view: WhatIfView, console: Console) -> None:
    title = (
        f"Against {view.hosted}, {view.requests_per_day:.0f} requests a day, a month of {view.hours_per_month:g} hours"
    )
    table = Table(
        "GPU", "model", "$/hour", "month in all $", "saves $", "90% of draws", "breaks even at", "would use",
        "rests on",
        title=title, box=None,
    )  # fmt: skip
    for one in view.answers:
        low, high = one.saving_low_usd, one.saving_high_usd
        table.add_row(
            one.gpu if one.gpus_per_replica == 1 else f"{one.gpus_per_replica} × {one.gpu}",
            one.model,
            f"{float(one.gpu_hour_usd):.2f}",
            f"{float(one.month_usd):.2f}",
            f"{float(one.saving_usd):.2f}",
            "" if low is None or high is None else f"{float(low):.2f} to {float(high):.2f}",
            break_even(one.break_even_utilisation),
            f"{one.expected_utilisation:.1%}",
            f"{one.price_basis} price, {one.speed_basis} speed",
        )
    show_table(table)
    console.print(view.answers[0].verdict)
    for reason in reasons(view):
        console.print(f"- {reason}")


def why_nothing(view: WhatIfView) -> str:
    """Why no GPU or model was computed."""
    return f"Nothing to compare: {'; '.join(reason.rstrip('.') for reason in reasons(view))}."


def reasons(view: WhatIfView) -> list[str]:
    """Each once, though several combinations share it. They name the GPU or model that they are about."""
    return list(dict.fromkeys(one.reason for one in view.refused))


def break_even(utilisation: float | None) -> str:
    """Above 100 % it never breaks even; the figure shows by how much it misses."""
    if utilisation is None:
        return "never"
    return f"{utilisation:.1%}" if utilisation <= 1 else f"never ({utilisation:.0%})"
