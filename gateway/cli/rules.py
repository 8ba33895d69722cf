"""`breakeven rules`: list, show, diff, apply, activate and roll back. Says whether a running gateway follows."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Column, Table

from gateway.cli.address import running_url
from gateway.cli.options import AsJson, AsJsonList
from gateway.cli.rules_in_force import how_it_was_taken
from gateway.cli.show_table import show_table
from gateway.cli.state import AUTHOR, Answer, ask
from gateway.clock import now_us
from gateway.composition.deployment import load_environment_settings
from gateway.config.home import find_home
from gateway.config.settings import read_text
from gateway.errors import NotFound
from gateway.instants import moment_of
from gateway.routing.rules import RulesDocument, rules_json_schema
from gateway.rulebook.service import RulesService
from gateway.rulebook.versions import Activation, StoredRules, text_diff

app = typer.Typer(help="Routing rules, as versions of which one is active.", no_args_is_help=True)


@app.command("list")
def list_rules(as_json: AsJsonList = False) -> None:
    """Every version, newest first."""
    active, versions = _ask(_list)
    if as_json:
        rows = [{**asdict(one), "is_active": one.version == active} for one in versions]
        print(json.dumps([{name: value for name, value in row.items() if name != "text"} for row in rows]))
        return
    table = Table(Column("version", no_wrap=True), "active", "author", "stored", "why")
    for one in versions:
        stored = moment_of(one.created_at_us).strftime("%Y-%m-%d %H:%M:%S UTC")
        table.add_row(one.version, "active" if one.version == active else "", one.author, stored, one.reason)
    show_table(table)


@app.command()
def show(version: str = typer.Argument("", help="The active one when left out.")) -> None:
    """The text of a version, exactly as it was stored."""
    print(_get(version).text, end="")


@app.command()
def schema() -> None:
    """The JSON schema of a rules file, for editors."""
    print(json.dumps(rules_json_schema(), indent=2))


@app.command()
def diff(
    new: str = typer.Argument(..., help="A version, or a file."),
    old: str = typer.Argument("", help="A version or a file; the active version when left out."),
) -> None:
    """What changes from one to the other; prints nothing when they are the same."""
    before, after = _text(old), _text(new)
    print(text_diff(before, after, old or "active", new))


@app.command()
def apply(
    file: Path = typer.Argument(..., help="A rules file."),
    reason: str = typer.Option("", help="Why; kept with the version and in the audit log."),
    activate: bool = typer.Option(True, "--activate/--no-activate", help="Make it the active version."),
    as_json: AsJson = False,
) -> None:
    """Validate a file, store it as a version and activate it."""
    text = read_text(file)
    version = _ask(lambda rules: _apply(rules, text, file, reason, activate=activate))
    taken = _how_it_was_taken(version) if activate else ""
    if as_json:
        print(json.dumps({"version": version, "is_active": activate} | ({"gateway": taken} if taken else {})))
    else:
        print(f"Version {version} is {f'active. {taken}' if activate else 'stored, not active.'}")


@app.command("activate")
def activate_version(version: str, reason: str = typer.Option("", help="Why; kept in the audit log.")) -> None:
    """Make a stored version the active one."""
    print(_said(_ask(lambda rules: _activate(rules, version, reason))))


@app.command()
def rollback(reason: str = typer.Option("", help="Why; kept in the audit log.")) -> None:
    """Activate what was active before."""
    print(_said(_ask(lambda rules: _roll_back(rules, reason))))


def _ask(question: Callable[[RulesService], Awaitable[Answer]]) -> Answer:
    return ask(
        lambda state: question(
            RulesService(state.rules, state.deployment.catalogue, _leave_to_the_gateway, now_us=now_us)
        )
    )


def _leave_to_the_gateway(document: RulesDocument, version: str) -> None:
    """Nothing routes in this process: the gateway polls the active version."""


async def _list(rules: RulesService) -> tuple[str | None, list[StoredRules]]:
    return await rules.active(), list(await rules.versions())


def _get(version: str) -> StoredRules:
    async def stored(rules: RulesService) -> StoredRules:
        wanted = version or await rules.active()
        if wanted is None:
            raise NotFound("No rules are stored yet: `breakeven serve` stores rules.yaml when it starts.")
        return await rules.get(wanted)

    return _ask(stored)


def _text(name: str) -> str:
    return read_text(Path(name)) if _is_path(name) else _get(name).text


def _is_path(name: str) -> bool:
    """Versions are bare words: anything else is a path, so that a missing file is reported as a missing file."""
    return Path(name).is_file() or any(sign in name for sign in "/.")


async def _apply(rules: RulesService, text: str, file: Path, reason: str, *, activate: bool) -> str:
    await rules.parse(text, file=str(file))  # an error names the file that was given
    active = await rules.active()
    stored = await rules.put(text, author=AUTHOR, reason=reason, expected_active=active)
    if activate and stored.version != active:
        await rules.activate(stored.version, author=AUTHOR, reason=reason, expected_active=active)
    return stored.version


async def _activate(rules: RulesService, version: str, reason: str) -> Activation:
    return await rules.activate(version, author=AUTHOR, reason=reason, expected_active=await rules.active())


async def _roll_back(rules: RulesService, reason: str) -> Activation:
    return await rules.roll_back(author=AUTHOR, reason=reason, expected_active=await rules.active())


def _said(activation: Activation) -> str:
    taken = _how_it_was_taken(activation.version)
    return f"Version {activation.version} is active; before it was {activation.previous or 'none'}. {taken}"


def _how_it_was_taken(version: str) -> str:
    """What the gateway that was last started here did. Other replicas may share its database."""
    home = find_home()
    if not home.address_file.exists():
        return "No gateway has been started here yet."
    here = how_it_was_taken(running_url(home), version)
    if load_environment_settings(home).database is None:
        return here
    return f"{here} For other replicas, `breakeven_rules` at /metrics says by which version each decides."
