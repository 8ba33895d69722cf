"""`breakeven keys`: create, list, change, rotate and revoke API keys."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import typer
from pydantic import TypeAdapter, ValidationError
from rich.table import Column, Table

from gateway.access.keys import Role
from gateway.access.roles import require_team
from gateway.access.rotation import OldSecret, Rotation
from gateway.api.admin.key_views import Label
from gateway.cli.key_rotation import NAMED, end_overlap, key_id_of, rotate
from gateway.cli.litellm_keys import import_litellm
from gateway.cli.show_table import show_table
from gateway.cli.state import AUTHOR, State, open_state
from gateway.clock import now_us
from gateway.instants import DAY_US, moment_of
from gateway.limits.openings import by_budget
from gateway.limits.values import WindowName, new_limits, window_id
from gateway.money import plain, usd
from gateway.storage.sql.openings import SqlOpenings
from gateway.stores import LAST_DAYS, KeyChange, ListedKey, NewKey
from gateway.yaml_document import problem_of

app = typer.Typer(help="API keys. A secret is shown once, when it is made.", no_args_is_help=True)
LABEL: TypeAdapter[str | None] = TypeAdapter(Label | None)
LIMITS = ("budget_usd", "requests_per_minute", "tokens_per_minute", "max_parallel_requests", "tier_quotas")
CLEARED = {
    "team": "team",
    "project": "project",
    "tags": "tags",
    "models": "allowed_models",
    "end": "expires_at_us",
    "budget": "budget_usd",
    "requests-per-minute": "requests_per_minute",
    "tokens-per-minute": "tokens_per_minute",
    "max-parallel-requests": "max_parallel_requests",
    "tier-quotas": "tier_quotas",
}
"""What `--clear` takes away, and the name under which it is stored."""
MOST_DAYS = 1_000_000  # well before the last date that can be represented
CLEAR_HELP = f"Take away: {', '.join(CLEARED)}. Repeatable."


@app.command()
def create(
    name: str = typer.Option(..., help="What to call it."),
    role: str = typer.Option("app", help="app (calls models), lead (of a team), viewer, finance, editor or owner."),
    team: str | None = typer.Option(None, help="Whose cost it is."),
    project: str | None = typer.Option(None, help="The project of that cost, for reports and budgets."),
    tag: list[str] = typer.Option([], help="Put on every request; repeatable."),
    model: list[str] = typer.Option([], help="Only these models; repeatable. All when left out."),
    days: float | None = typer.Option(
        None, min=0, max=MOST_DAYS, help="Expires after so many days; never when left out."
    ),
    budget_usd: str | None = typer.Option(None, help="The most it may spend in a window, in dollars."),
    budget_window: str | None = typer.Option(None, help="day, month (when left out) or total, UTC."),
    requests_per_minute: int | None = typer.Option(None, min=1, help="How many it may send in a minute."),
    tokens_per_minute: int | None = typer.Option(None, min=1, help="Input tokens in a minute."),
    max_parallel_requests: int | None = typer.Option(None, min=1, help="How many it may have under way at once."),
    tier_quota: list[str] = typer.Option(
        [], help="TIER=REQUESTS/WINDOW, such as premium=100/day; tiers are named in breakeven.yaml. Repeatable."
    ),
    keep_bodies: bool = typer.Option(False, "--keep-bodies", help="Store its prompts and answers, encrypted."),
    as_json: bool = typer.Option(False, "--json", help='Print {"id", "key"}.'),
) -> None:
    """Make a key and print its secret, which cannot be shown again."""
    if role not in Role.__args__:
        raise typer.BadParameter(f"{role!r} is not one of {', '.join(Role.__args__)}", param_hint="--role")
    require_team(cast("Role", role), team)
    _require_labels(name, team, project, tag)
    new = NewKey(name, role, team, project, tuple(tag), tuple(model) or None, _end(days), keep_bodies)  # pyright: ignore[reportArgumentType]
    asked = (requests_per_minute, tokens_per_minute, max_parallel_requests)
    limits = _with_window(_limits(budget_usd, budget_window, asked, tier_quota))
    listed, secret = asyncio.run(_create(new, limits))
    if as_json:
        print(json.dumps({"id": listed.record.id, "key": secret}))
    else:
        print(f"Key {listed.record.id} ({name}, {role}). Its secret, shown this once:\n{secret}")


@app.command()
def change(
    key: str = typer.Argument(..., help=NAMED),
    name: str | None = typer.Option(None, help="What to call it from now on."),
    team: str | None = typer.Option(None, help="Whose cost it is from now on; what was spent stays where it is."),
    project: str | None = typer.Option(None, help="The project of that cost, for reports and budgets."),
    tag: list[str] = typer.Option([], help="All its tags; repeatable."),
    model: list[str] = typer.Option([], help="Only these models; repeatable."),
    days: float | None = typer.Option(None, min=0, max=MOST_DAYS, help="Expires after so many days from now."),
    budget_usd: str | None = typer.Option(None, help="The most it may spend in a window, in dollars."),
    budget_window: str | None = typer.Option(None, help="day, month or total (UTC); unchanged when left out."),
    requests_per_minute: int | None = typer.Option(None, min=1, help="How many it may send in a minute."),
    tokens_per_minute: int | None = typer.Option(None, min=1, help="Input tokens in a minute."),
    max_parallel_requests: int | None = typer.Option(None, min=1, help="How many it may have under way at once."),
    tier_quota: list[str] = typer.Option([], help="TIER=REQUESTS/WINDOW, all of them; repeatable."),
    clear: list[str] = typer.Option([], help=CLEAR_HELP),
) -> None:
    """Change the given fields and leave the rest. Every worker knows within a second."""
    if unknown := [one for one in clear if one not in CLEARED]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(CLEARED)}", param_hint="--clear")
    _require_labels(name, team, project, tag)
    given: dict[str, Any] = {
        "name": name,
        "team": team,
        "project": project,
        "tags": tuple(tag) or None,
        "allowed_models": tuple(model) or None,
        "expires_at_us": _end(days),
    }
    given = {name: value for name, value in given.items() if value is not None}
    asked = (requests_per_minute, tokens_per_minute, max_parallel_requests)
    limits = _limits(budget_usd, budget_window, asked, tier_quota)
    for one in clear:
        column = CLEARED[one]
        if column in LIMITS and column not in limits:
            limits[column] = None
        elif column not in LIMITS and column not in given:
            given[column] = () if column == "tags" else None
        else:
            raise typer.BadParameter(f"{one} is both cleared and given a value", param_hint="--clear")
    if not given and not limits:
        raise typer.BadParameter("name what to change; `breakeven keys change --help` lists it")
    print(f"Changed {asyncio.run(_change(key, cast('KeyChange', given), limits))}.")


def _require_labels(name: str | None, team: str | None, project: str | None, tags: Sequence[str]) -> None:
    """The rule of `/admin/v1/keys`. Raises BadParameter."""
    given = [("--name", name), ("--team", team), ("--project", project), *(("--tag", one) for one in tags)]
    for option, value in given:
        try:
            LABEL.validate_python(value)
        except ValidationError as error:
            raise typer.BadParameter(f"{value!r} {problem_of(error.errors()[0])}", param_hint=option) from error


def _end(days: float | None) -> int | None:
    return None if days is None else now_us() + round(days * DAY_US)


def _limits(
    budget_usd: str | None,
    budget_window: str | None,
    asked: tuple[int | None, int | None, int | None],
    tier_quota: Sequence[str],
) -> dict[str, Any]:
    """The limits given, as they are stored; `asked` is requests a minute, tokens a minute, and requests at once.

    Raises BadParameter.
    """
    requests_per_minute, tokens_per_minute, max_parallel_requests = asked
    given = {
        "budget_usd": budget_usd,
        "budget_window": budget_window,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "max_parallel_requests": max_parallel_requests,
        "tier_quotas": dict(_quota(text) for text in tier_quota) or None,
    }
    try:
        return new_limits(given)
    except ValueError as error:
        raise typer.BadParameter(f"limits: {error}") from error


def _quota(text: str) -> tuple[str, dict[str, object]]:
    """`premium=100/day` as it is stored."""
    tier, _, amount = text.partition("=")
    requests, _, window = amount.partition("/")
    if not (tier and requests.isdecimal() and window):
        raise typer.BadParameter(f"{text!r} is not TIER=REQUESTS/WINDOW, as in premium=100/day")
    return tier, {"requests": int(requests), "window": window}


@app.command("list")
def list_keys(as_json: bool = typer.Option(False, "--json")) -> None:
    """All keys, without their secrets."""
    rows = asyncio.run(_list())
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(Column("id", no_wrap=True), "name", "role", "team", "project", "created", "state", "last request")
    for row in rows:
        whose = (str(row[column] or "") for column in ("id", "name", "role", "team", "project"))
        last = row["last_request_on"] or f"none in {LAST_DAYS} days"
        came = f"{_readable(row['created'])}{', from LiteLLM' if row['taken_over_from'] else ''}"
        table.add_row(*whose, came, str(row["state"]), last)
    show_table(table)
    for row in rows:
        if row["state"] == "active" and row["secret"] != "ours":
            print(f"{row['id']} {row['name']}: its secret is the one that it had at LiteLLM")
        if row["state"] == "active" and row["taken_over_usd"] is not None:
            when = {"day": "today", "month": "this month"}[row["limits"].get("budget_window", "month")]
            print(f"{row['id']} {row['name']}: of its budget ${row['taken_over_usd']} was spent {when} at LiteLLM")
        if row["state"] == "active":
            for old in row["old_secrets"]:
                last_used = "not used since" if old["last_used"] is None else f"last used {_readable(old['last_used'])}"
                print(f"{row['id']} {row['name']}: an older secret works until {_readable(old['ends'])}, {last_used}")


app.command("import-litellm")(import_litellm)
app.command()(rotate)
app.command()(end_overlap)


@app.command()
def revoke(key: str = typer.Argument(..., help=NAMED)) -> None:
    """End a key. Every worker refuses it within a second."""
    print(f"Revoked {asyncio.run(_revoke(key))}.")


async def _create(new: NewKey, limits: Mapping[str, Any]) -> tuple[ListedKey, str]:
    async with open_state() as state:
        _require_tiers(state, limits)
        await _tell_unknown(state, new.allowed_models or ())
        return await state.keys.create(new, author=AUTHOR, limits=limits)


async def _change(named: str, change: KeyChange, limits: Mapping[str, Any]) -> str:
    """Returns the key's id. `limits` override the key's own; None removes one, and with a budget its window."""
    async with open_state() as state:
        key_id = await key_id_of(state, named)
        _require_tiers(state, limits)
        if limits:
            stored = {**(await state.keys.limits()).get(key_id, {}), **limits}
            if stored.get("budget_usd") is None and "budget_window" not in limits:
                stored.pop("budget_window", None)
            change = {**change, "limits": _with_window({n: value for n, value in stored.items() if value is not None})}
        await _tell_unknown(state, change.get("allowed_models") or ())
        await state.keys.change(key_id, change, author=AUTHOR)
        return key_id


async def _tell_unknown(state: State, models: Sequence[str]) -> None:
    """Warns and does not refuse: the model may be added later. But a key for a misspelt one can call nothing."""
    document, _ = await state.active_rules()
    known = state.deployment.catalogue.models(document)
    for name in models:
        if name not in known:
            print(
                f"There is no model {name!r} here now; until there is, this key cannot call it. "
                f"There are: {', '.join(sorted(known)) or 'none'}",
                file=sys.stderr,
            )


def _with_window(limits: dict[str, Any]) -> dict[str, Any]:
    """A budget without a window is for a month; a window without a budget is refused."""
    if "budget_usd" in limits:
        return {"budget_window": "month", **limits}
    if "budget_window" in limits:
        raise typer.BadParameter("a window needs a budget: give --budget-usd too", param_hint="--budget-window")
    return limits


def _require_tiers(state: State, limits: Mapping[str, Any]) -> None:
    known = state.deployment.settings.tiers
    if unknown := sorted((limits.get("tier_quotas") or {}).keys() - known.keys()):
        raise typer.BadParameter(
            f"there is no tier {unknown[0]!r} in breakeven.yaml; there are: {', '.join(sorted(known)) or 'none'}"
        )


def _readable(at: str) -> str:
    return f"{at[:10]} {at[11:19]} UTC"


async def _list() -> list[dict[str, Any]]:
    async with open_state() as state:
        limits, rotations = await state.keys.limits(), await state.secrets.rotations()
        last_days, litellms = await state.keys.last_days(), await state.keys.litellms()
        listed = {one.record.id: one for one in await state.keys.list()}
        windows = {window: window_id(window, now_us()) for window in WindowName.__args__}
        opened = by_budget(await SqlOpenings(state.database).of(windows.values()))
        rows = [_row(one, limits.get(key, {}), rotations.get(key), last_days.get(key)) for key, one in listed.items()]
        for row in rows:  # a rotation replaces LiteLLM's secret by ours
            row["secret"] = "LiteLLM's" if row["id"] in litellms and row["id"] not in rotations else "ours"
            row["taken_over_from"] = "LiteLLM" if row["id"] in litellms else None
            window = windows[row["limits"].get("budget_window", "month")]
            opening = opened.get(("key", row["id"], window)) if "budget_usd" in row["limits"] else None
            row["taken_over_usd"] = plain(usd(opening)) if opening else None
        return rows


async def _revoke(named: str) -> str:
    async with open_state() as state:
        key_id = await key_id_of(state, named)
        await state.keys.revoke(key_id, author=AUTHOR)
        return key_id


def _row(
    listed: ListedKey, limits: Mapping[str, Any], rotation: Rotation | None, last_day: int | None
) -> dict[str, Any]:
    record, now = listed.record, now_us()
    is_expired = record.expires_at_us is not None and record.expires_at_us <= now
    return {
        "id": record.id,
        "name": record.name,
        "role": record.role,
        "team": record.team,
        "project": record.project,
        "tags": list(record.tags),
        "allowed_models": sorted(record.allowed_models) if record.allowed_models is not None else None,
        "keeps_bodies": record.keeps_bodies,
        "limits": dict(limits),
        "created": _moment(listed.created_at_us),
        "expires": None if record.expires_at_us is None else _moment(record.expires_at_us),
        "rotated": None if rotation is None else _moment(rotation.rotated_at_us),
        "old_secrets": [] if rotation is None else [_old(one) for one in rotation.working],
        "last_request_on": None if last_day is None else _moment(last_day * DAY_US)[:10],
        "state": "revoked" if record.revoked_at_us is not None else "expired" if is_expired else "active",
    }


def _old(one: OldSecret) -> dict[str, str | None]:
    last_used = None if one.last_used_at_us is None else _moment(one.last_used_at_us)
    return {"replaced": _moment(one.replaced_at_us), "ends": _moment(one.ends_at_us), "last_used": last_used}


def _moment(at_us: int) -> str:
    return moment_of(at_us).isoformat(timespec="seconds")
