"""`breakeven keys import-litellm`: the keys of LiteLLM's proxy, so that apps keep theirs on the day of the move."""

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from gateway.cli.from_litellm import read_merged
from gateway.cli.options import AsJson
from gateway.cli.show_table import show_table, visible
from gateway.cli.state import AUTHOR, State, ask
from gateway.clock import now_us
from gateway.config.settings import read_text
from gateway.counted import counted
from gateway.from_litellm.allowed import Models
from gateway.from_litellm.config_file import access_groups
from gateway.from_litellm.fields import DATABASE_VARIABLE, TABLES
from gateway.from_litellm.rows import Rows, parse_answers, parse_row
from gateway.from_litellm.take_over import (
    TakenBudget,
    TakenKey,
    TakenOpening,
    TakeOver,
    take_over,
    without_openings,
)
from gateway.instants import moment_of
from gateway.limits.openings import Opening
from gateway.money import parse_usd, plain
from gateway.routing.rules import RulesDocument
from gateway.storage.litellm_rows import parse_litellm_url, read_litellm
from gateway.storage.sql.budgets import SqlBudgets
from gateway.storage.sql.litellm_keys import LiteLLMKey
from gateway.stores import Budget, ListedKey

Part = TypeVar("Part")
COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
AT_ONCE = 100
"""Keys or budgets in one transaction, for which every other writer waits."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found, which keys and budgets were here before, and which keys were made: none in a dry run."""

    found: TakeOver
    here: Mapping[bytes, ListedKey]
    budgets_here: frozenset[tuple[str, str]]
    made: Mapping[bytes, str]
    rates: Mapping[str, Mapping[str, int]]


def import_litellm(
    database: str | None = typer.Option(
        None, envvar=DATABASE_VARIABLE, help="LiteLLM's DATABASE_URL; it is only read."
    ),
    answer: list[Path] = typer.Option(
        [], help="Instead: a file with an answer of its /key/list?return_full_object=true or /team/list; repeatable."
    ),
    config: Path | None = typer.Option(None, help="LiteLLM's config.yaml, for its access groups of models."),
    anew: bool = typer.Option(
        False, "--budgets-anew", help="Do not count what was spent there in the current day or month."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would be made, and make nothing."),
    as_json: AsJson = False,
) -> None:
    """Take over LiteLLM's keys, with their limits and budgets; apps keep their secrets."""
    if not database and not answer:
        raise typer.BadParameter("give LiteLLM's --database, or files of its answers with --answer")
    rows = parse_answers({str(one): read_text(one) for one in answer}) if answer else asyncio.run(_read(database or ""))
    groups = access_groups(read_merged(config).root) if config is not None else {}
    outcome = ask(lambda state: _import(state, rows, groups, dry_run=dry_run, anew=anew), is_looking=dry_run)
    if as_json:
        print(json.dumps(_document(outcome, dry_run=dry_run)))
    else:
        _tell(outcome, dry_run=dry_run)


async def _read(database: str) -> Rows:
    try:
        url, schema = parse_litellm_url(database)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--database") from error
    found = await read_litellm(url, schema, TABLES)
    return Rows({table: [parse_row(text) for text in texts] for table, texts in found.items()})


async def _import(
    state: State, rows: Rows, groups: Mapping[str, Sequence[str]], *, dry_run: bool, anew: bool
) -> Outcome:
    document, _ = await state.active_rules()
    at_us = now_us()
    found = take_over(rows, Models(lambda name: _here(state, document, name), groups), now_us=at_us)
    if anew:
        found = without_openings(found)
    here: dict[bytes, ListedKey] = {}
    for part in _parts(found.keys):
        here |= await state.litellm_keys.find([one.digest for one in part])
    budgets_here = frozenset((one.scope, one.name) for one in await SqlBudgets(state.database).budgets())
    made: Mapping[bytes, str] = {}
    if not dry_run:  # budgets first, so that no key works before its budget exists
        await _set_budgets(state, found.budgets, budgets_here, at_us)
        made = await _make_keys(state, found.keys)
    shared = state.deployment.shared_limits.teams
    rates = {team: one for team, one in found.rates.items() if team not in shared}
    return Outcome(found, here, budgets_here, made, rates)


async def _set_budgets(
    state: State, found: Sequence[TakenBudget], here: Collection[tuple[str, str]], at_us: int
) -> None:
    for part in _parts(found):
        openings = [Opening(one.scope, one.name, *its) for one in part if (its := _pico(one.opening)) is not None]
        new = [one for one in part if (one.scope, one.name) not in here]
        budgets = [Budget(one.scope, one.name, parse_usd(one.month_usd), AUTHOR, at_us, stops=True) for one in new]
        await state.litellm_keys.set_budgets(budgets, openings, author=AUTHOR)


async def _make_keys(state: State, found: Sequence[TakenKey]) -> Mapping[bytes, str]:
    """The ids of the new keys. Each part is committed by itself; an interrupted import can be run again."""
    made: dict[bytes, str] = {}
    with Progress(*COLUMNS, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("Keys", total=len(found))
        for part in _parts(found):
            keys = [LiteLLMKey(one.digest, one.new, one.limits, _pico(one.opening)) for one in part]
            taken = await state.litellm_keys.take_over(keys, author=AUTHOR)
            made |= {digest: listed.record.id for digest, (listed, is_made) in taken.items() if is_made}
            shown.advance(task, len(part))
    return made


def _parts(many: Sequence[Part]) -> Iterator[Sequence[Part]]:
    return (many[start : start + AT_ONCE] for start in range(0, len(many), AT_ONCE))


def _pico(opening: TakenOpening | None) -> tuple[str, int] | None:
    return None if opening is None else (opening.window_id, parse_usd(opening.usd))


def _here(state: State, document: RulesDocument, name: str) -> Sequence[str]:
    """Our models for LiteLLM's name, as `from-litellm` makes them: one, or several that a rule chooses from."""
    if name in state.deployment.catalogue.models(document):
        return (name,)
    for rule in document.rules:
        names = rule.when.model if rule.when is not None else None
        if names and name in names and isinstance(rule.choose.from_, list):
            models = rule.choose.from_
            return [one for one in models if one == names[0] or one.startswith(f"{names[0]}@")] or models
    return ()


def _state(outcome: Outcome, key: TakenKey, *, dry_run: bool) -> str:
    if (before := outcome.here.get(key.digest)) is not None:
        revoked = ", revoked here" if before.record.revoked_at_us is not None else ""
        return f"is here: {before.record.id}{revoked}"
    return "would be made" if dry_run else f"made: {outcome.made[key.digest]}"


def _budget_state(outcome: Outcome, one: TakenBudget, *, dry_run: bool) -> str:
    is_here = (one.scope, one.name) in outcome.budgets_here
    return "is here, and stays as it is" if is_here else "would be set" if dry_run else "set"


def _document(outcome: Outcome, *, dry_run: bool) -> dict[str, Any]:
    return {
        "keys": [
            {
                "name": key.new.name,
                "team": key.new.team,
                "project": key.new.project,
                "tags": list(key.new.tags),
                "allowed_models": None if key.new.allowed_models is None else list(key.new.allowed_models),
                "limits": dict(key.limits),
                "expires": _end(key),
                "spent_at_litellm_usd": plain(key.spent_usd),
                "counts_here_usd": _counted(key.opening),
                "state": _state(outcome, key, dry_run=dry_run),
                "notes": list(key.notes),
            }
            for key in outcome.found.keys
        ],
        "budgets": [
            {
                "scope": one.scope,
                "name": one.name,
                "month_usd": plain(one.month_usd),
                "spent_at_litellm_usd": plain(one.spent_usd),
                "counts_here_usd": _counted(one.opening),
                "state": _budget_state(outcome, one, dry_run=dry_run),
                "notes": list(one.notes),
            }
            for one in outcome.found.budgets
        ],
        "rates_of_teams": outcome.rates,
        "left_out": outcome.found.left_out,
        "notes": outcome.found.notes,
    }


def _tell(outcome: Outcome, *, dry_run: bool) -> None:
    found = outcome.found
    keys = Table(Column("key", no_wrap=True), "team", "project", "models", "limits", "spent there", "expires", "")
    for key in found.keys:
        models = "all" if key.new.allowed_models is None else ", ".join(key.new.allowed_models) or "none"
        whose = (key.new.name, key.new.team or "", key.new.project or "", models, _limits(key.limits))
        keys.add_row(*whose, _spent(key), _end(key) or "", _state(outcome, key, dry_run=dry_run))
    show_table(keys)
    if found.budgets:
        budgets = Table(Column("budget of", no_wrap=True), "a month", "spent there", "")
        for one in found.budgets:
            amounts = (f"${plain(one.month_usd)}", _spent(one))
            budgets.add_row(f"{one.scope} {one.name}", *amounts, _budget_state(outcome, one, dry_run=dry_run))
        show_table(budgets)
    for title, lines in (
        ("Not made", found.left_out),
        ("Notes on keys", [f"{key.new.name}: {note}" for key in found.keys for note in key.notes]),
        ("Notes on budgets", [f"{one.scope} {one.name}: {note}" for one in found.budgets for note in one.notes]),
        ("Other notes", found.notes),
    ):
        if lines:
            print(f"\n{title}:")
            print("\n".join(f"  {visible(line)}" for line in lines))
    if outcome.rates:
        print("\nRates of teams, to be put into breakeven.yaml:")
        print(yaml.safe_dump({"limits": {"teams": dict(outcome.rates)}}, sort_keys=False).rstrip())
    made = counted(len(found.keys) - len(outcome.here), "key")
    would = "would be made" if dry_run else "made"
    print(f"\n{made} {would}, {len(outcome.here)} here before, {len(found.left_out)} left out.")


def _counted(opening: TakenOpening | None) -> str:
    return "0" if opening is None else plain(opening.usd)


def _spent(one: TakenKey | TakenBudget) -> str:
    """As a table's cell."""
    counts = ", which counts here" if one.opening is not None and one.opening.usd else ""
    return f"${plain(one.spent_usd)}{counts}"


def _limits(limits: Mapping[str, Any]) -> str:
    """As a table's cell."""
    words = {"requests_per_minute": "requests/min", "tokens_per_minute": "tokens/min"}
    words["max_parallel_requests"] = "at once"
    budget = [f"${limits['budget_usd']} / {limits['budget_window']}"] if "budget_usd" in limits else []
    return ", ".join([*budget, *(f"{limits[name]} {word}" for name, word in words.items() if name in limits)])


def _end(key: TakenKey) -> str | None:
    at_us = key.new.expires_at_us
    return None if at_us is None else f"{moment_of(at_us):%Y-%m-%d %H:%M} UTC"
