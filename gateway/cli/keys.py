"""`breakeven keys`: create, list, change, rotate and revoke API keys."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import typer
from pydantic import TypeAdapter, ValidationError

from gateway.access.keys import Role
from gateway.access.roles import require_team
from gateway.api.admin.key_views import Label
from gateway.cli.key_list import list_keys
from gateway.cli.key_rotation import NAMED, end_overlap, key_id_of, rotate
from gateway.cli.litellm_keys import import_litellm
from gateway.cli.state import AUTHOR, State, ask
from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.limits.values import new_limits
from gateway.stores import KeyChange, ListedKey, NewKey
from gateway.yaml_document import problem_of

app = typer.Typer(help="API keys. A secret is shown once, when it is made.", no_args_is_help=True)
LABEL: TypeAdapter[str | None] = TypeAdapter(Label | None)
LIMITS = (
    *("budget_usd", "end_user_budget_usd"),
    *("requests_per_minute", "tokens_per_minute", "max_parallel_requests", "tier_quotas"),
)
CLEARED = {
    "team": "team",
    "project": "project",
    "tags": "tags",
    "models": "allowed_models",
    "end": "expires_at_us",
    "budget": "budget_usd",
    "end-user-budget": "end_user_budget_usd",
    "requests-per-minute": "requests_per_minute",
    "tokens-per-minute": "tokens_per_minute",
    "max-parallel-requests": "max_parallel_requests",
    "tier-quotas": "tier_quotas",
}
"""What `--clear` takes away, and the name under which it is stored."""
BUDGET_WINDOWS = {"budget_usd": "budget_window", "end_user_budget_usd": "end_user_budget_window"}
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
    end_user_budget_usd: str | None = typer.Option(
        None, help="The most that each end user, whom every request then names, may spend in a window, in dollars."
    ),
    end_user_budget_window: str | None = typer.Option(None, help="day or month (when left out), UTC."),
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
    limits = _with_window(
        _limits(
            tier_quota,
            budget_usd=budget_usd,
            budget_window=budget_window,
            end_user_budget_usd=end_user_budget_usd,
            end_user_budget_window=end_user_budget_window,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            max_parallel_requests=max_parallel_requests,
        )
    )
    listed, secret = ask(lambda state: _create(state, new, limits))
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
    end_user_budget_usd: str | None = typer.Option(
        None, help="The most that each end user, whom every request then names, may spend in a window, in dollars."
    ),
    end_user_budget_window: str | None = typer.Option(None, help="day or month (UTC); unchanged when left out."),
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
    limits = _limits(
        tier_quota,
        budget_usd=budget_usd,
        budget_window=budget_window,
        end_user_budget_usd=end_user_budget_usd,
        end_user_budget_window=end_user_budget_window,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        max_parallel_requests=max_parallel_requests,
    )
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
    changed = ask(lambda state: _change(state, key, cast("KeyChange", given), limits))
    print(f"Changed {changed}.")


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


def _limits(tier_quota: Sequence[str], **given: object) -> dict[str, Any]:
    """The limits given, as they are stored. Raises BadParameter."""
    quotas = dict(_quota(text) for text in tier_quota) or None
    try:
        return new_limits({**given, "tier_quotas": quotas})
    except ValueError as error:
        raise typer.BadParameter(f"limits: {error}") from error


def _quota(text: str) -> tuple[str, dict[str, object]]:
    """`premium=100/day` as it is stored."""
    tier, _, amount = text.partition("=")
    requests, _, window = amount.partition("/")
    if not (tier and requests.isdecimal() and window):
        raise typer.BadParameter(f"{text!r} is not TIER=REQUESTS/WINDOW, as in premium=100/day")
    return tier, {"requests": int(requests), "window": window}


app.command("list")(list_keys)
app.command("import-litellm")(import_litellm)
app.command()(rotate)
app.command()(end_overlap)


@app.command()
def revoke(key: str = typer.Argument(..., help=NAMED)) -> None:
    """End a key. Every worker refuses it within a second."""
    revoked = ask(lambda state: _revoke(state, key))
    print(f"Revoked {revoked}.")


async def _create(state: State, new: NewKey, limits: Mapping[str, Any]) -> tuple[ListedKey, str]:
    _require_tiers(state, limits)
    await _tell_unknown(state, new.allowed_models or ())
    return await state.keys.create(new, author=AUTHOR, limits=limits)


async def _change(state: State, named: str, change: KeyChange, limits: Mapping[str, Any]) -> str:
    """Returns the key's id. `limits` override the key's own; None removes one, and with a budget its window."""
    key_id = await key_id_of(state, named)
    _require_tiers(state, limits)
    if limits:
        stored = {**(await state.keys.limits()).get(key_id, {}), **limits}
        for usd, window in BUDGET_WINDOWS.items():
            if stored.get(usd) is None and window not in limits:
                stored.pop(window, None)
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
    for usd, window in BUDGET_WINDOWS.items():
        if usd in limits:
            limits = {window: "month", **limits}
        elif window in limits:
            option, needed = (f"--{name.replace('_', '-')}" for name in (window, usd))
            raise typer.BadParameter(f"a window needs a budget: give {needed} too", param_hint=option)
    return limits


def _require_tiers(state: State, limits: Mapping[str, Any]) -> None:
    known = state.deployment.settings.tiers
    if unknown := sorted((limits.get("tier_quotas") or {}).keys() - known.keys()):
        raise typer.BadParameter(
            f"there is no tier {unknown[0]!r} in breakeven.yaml; there are: {', '.join(sorted(known)) or 'none'}"
        )


async def _revoke(state: State, named: str) -> str:
    key_id = await key_id_of(state, named)
    await state.keys.revoke(key_id, author=AUTHOR)
    return key_id
