"""`breakeven retention`: applies `retention` of breakeven.yaml now; `serve` does the same every hour. Or forgets an end
user."""

import json
from dataclasses import asdict

import typer

from gateway.cli.options import AsJson
from gateway.cli.state import AUTHOR, State, ask
from gateway.clock import now_us
from gateway.storage.retention import Forgotten, apply_retention, forget_end_user


def command(
    forget: str | None = typer.Option(
        None,
        "--forget-end-user",
        help="Only take this end user out of the requests that name them, and delete the texts stored of these.",
    ),
    as_json: AsJson = False,
) -> None:
    """Delete single requests and stored texts that are older than `retention` allows; every sum stays."""
    if forget is not None:
        _forget(forget, as_json=as_json)
        return
    forgotten = ask(_apply)
    if as_json:
        print(json.dumps(asdict(forgotten)))
        return
    months = ", ".join(forgotten.months) or "no month is old enough"
    print(f"Single requests forgotten: {months}. Stored texts forgotten: {forgotten.bodies:,}.")


def _forget(end_user: str, *, as_json: bool) -> None:
    found = ask(lambda state: forget_end_user(state.database, end_user, now_us=now_us(), author=AUTHOR))
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        print(f"Requests that named this end user: {found.requests:,}. Stored texts deleted: {found.bodies:,}.")


async def _apply(state: State) -> Forgotten:
    kept = state.deployment.settings.retention
    return await apply_retention(
        state.database,
        requests_days=kept.requests_days,
        bodies_days=kept.bodies_days,
        now_us=now_us(),
        author=AUTHOR,
    )
