"""`breakeven migrate`: brings the database's schema up to date, or back to one that an older version reads."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from gateway.cli.known_keys import require_its_database
from gateway.cli.options import AsJson
from gateway.composition.deployment import load_environment_settings
from gateway.config.home import Home, find_home
from gateway.errors import StateError
from gateway.process.sole_use import sole_use
from gateway.storage.database import migrate, open_database
from gateway.storage.later_work import LaterWork
from gateway.storage.revisions import present_revision
from gateway.storage.schema import Loss, Revision, losses, require_revision, revisions

AFTER = "Start the older version now: any other command of this version would upgrade the schema again."
ELSEWHERE = "A running gateway is doing the rest beside the requests; its log says when it is done."


@dataclass(frozen=True, slots=True)
class Plan:
    """Present and target revision, the revisions to undo (newest first), and the data that is lost with them."""

    present: str | None
    target: str
    undone: Sequence[Revision]
    lost: Sequence[Loss]


def command(
    to: Annotated[str | None, typer.Option(help="A revision, such as 0008; the newest when left out.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Go back; without it, only say what would be lost.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the schema up to date, or back to an older version's; before going back, stop every replica and take a
    backup."""
    known = revisions()
    target = to or known[-1].number
    require_revision(target)
    home = find_home()
    require_its_database(home)
    url = load_environment_settings(home).database or home.database_url
    plan = asyncio.run(_plan(url, target, known))
    goes = yes or not plan.undone
    if goes and plan.present != target:
        with _alone(home) if plan.undone else nullcontext():
            asyncio.run(migrate(url, target))
    is_finished = target != known[-1].number or asyncio.run(LaterWork(url).do())
    if as_json:
        print(json.dumps({**asdict(plan), "is_done": goes}))
    else:
        print("\n".join([*_told(plan, is_done=goes), *([] if is_finished else [ELSEWHERE])]))


async def _plan(url: str, target: str, known: Sequence[Revision]) -> Plan:
    """Only reads."""
    engine = open_database(url)
    try:
        async with engine.connect() as connection:
            present = await connection.run_sync(present_revision)
            if present is not None and present not in {one.number for one in known}:
                raise StateError(f"the schema is {present}, of a newer Breakeven: use that one's `migrate`")
            undone = [one for one in reversed(known) if target < one.number <= (present or "")]
            return Plan(present, target, undone, await connection.run_sync(losses, target) if undone else [])
    finally:
        await engine.dispose()


def _alone(home: Home) -> AbstractContextManager[None]:
    """Refuses to go back beside a running gateway, which would write to tables and columns that are gone."""
    return sole_use(home.lock_file, of=str(home.root), advice="stop it, and every other replica, before going back")


def _told(plan: Plan, *, is_done: bool) -> list[str]:
    if plan.present == plan.target:
        return [f"The schema is {plan.target} already."]
    if not plan.undone:
        return [f"The schema is {plan.target} now; it was {plan.present or 'not there'}."]
    lost = [f"  {_place(one)}  {one.rows:,}" for one in plan.lost if one.rows]
    return [
        f"Back from {plan.present} to {plan.target}; undone, the newest first:",
        *(f"  {one.number}  {one.summary}" for one in plan.undone),
        *(
            ["What is lost with that, and in how many rows:", *lost]
            if lost
            else ["Nothing that is stored is lost with that."]
        ),
        AFTER if is_done else "Nothing was changed yet. Stop every replica, take a backup, then add --yes.",
    ]


def _place(loss: Loss) -> str:
    return loss.table if loss.column is None else f"{loss.table}.{loss.column}"
