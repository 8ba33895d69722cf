"""Translates LiteLLM's keys, teams and budgets into ours, and lists what cannot be translated. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, Literal

from gateway.from_litellm.allowed import Models
from gateway.from_litellm.fields import (
    ACCESS_GROUPS,
    BUDGETS,
    FACTS,
    KEYS,
    NO_PLACE,
    PROJECTS,
    TAKEN,
    TEAMS,
    TOLD,
    USERS,
)
from gateway.from_litellm.left_behind import PAGES_TEAM, left_behind
from gateway.from_litellm.rows import (
    Row,
    Rows,
    as_label,
    digest_of,
    distinct_labels,
    fields_of,
    is_said,
    moment_us,
    names_of,
    whole,
)
from gateway.from_litellm.windows import MOST, Window, read_usd, window_of
from gateway.instants import microseconds
from gateway.limits.values import window_end, window_id
from gateway.money import plain
from gateway.stores import NewKey

Owned = Literal["team", "project"]
MOST_TAGS: Final = 16
RATES: Final = {
    "rpm_limit": "requests_per_minute",
    "tpm_limit": "tokens_per_minute",
    "max_parallel_requests": "max_parallel_requests",
}
MODEL_ROUTES: Final = frozenset({"llm_api_routes", "openai_routes", "anthropic_routes"})
OTHER_ROUTES: Final = frozenset({"management_routes", "info_routes", "self_managed_routes", "spend_tracking_routes"})


@dataclass(frozen=True, slots=True)
class TakenOpening:
    """What LiteLLM has counted of a budget in its present period, which is this window here."""

    window_id: str
    usd: Decimal


@dataclass(frozen=True, slots=True)
class TakenKey:
    """`notes` say what of it has no counterpart here; `spent_usd` is what it spent there since its last reset, and
    `opening` what of that counts against its budget here."""

    digest: bytes = field(repr=False)
    new: NewKey
    limits: Mapping[str, Any]
    spent_usd: Decimal
    notes: Sequence[str]
    opening: TakenOpening | None = None


@dataclass(frozen=True, slots=True)
class TakenBudget:
    """For a calendar month; requests are refused once it is spent."""

    scope: Owned
    name: str
    month_usd: Decimal
    spent_usd: Decimal
    notes: Sequence[str]
    opening: TakenOpening | None = None


@dataclass(slots=True)
class TakeOver:
    """`rates` are of teams, for `limits: {teams: ...}`. `left_out` says which keys are not made, and why."""

    keys: list[TakenKey] = field(default_factory=list[TakenKey])
    budgets: list[TakenBudget] = field(default_factory=list[TakenBudget])
    rates: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    left_out: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def take_over(rows: Rows, models: Models, *, now_us: int) -> TakeOver:
    """`models` translates model names; the database's access groups count besides its own."""
    groups = {
        str(one.get("access_group_id")): names_of(one.get("access_model_names")) for one in rows.of(ACCESS_GROUPS)
    }
    reader = _Reader(rows, models, groups, now_us)
    made = TakeOver()
    for row in rows.of(KEYS):
        reader.add_key(made, row)
    for row in rows.of(TEAMS):
        reader.add_budget(made, "team", row)
    for row in rows.of(PROJECTS):
        reader.add_budget(made, "project", row)
    counts_tokens = any(
        "tokens_per_minute" in one for one in (*made.rates.values(), *(one.limits for one in made.keys))
    )
    made.notes += left_behind(rows, counts_tokens=counts_tokens, now_us=now_us)
    return made


def without_openings(found: TakeOver) -> TakeOver:
    """The same, with budgets that start at zero."""
    return replace(
        found,
        keys=[replace(one, opening=None) for one in found.keys],
        budgets=[replace(one, opening=None) for one in found.budgets],
    )


class _Reader:
    def __init__(self, rows: Rows, models: Models, groups: Mapping[str, Sequence[str]], now_us: int) -> None:
        self._is_whole = rows.is_whole
        self._models = models
        self._groups = groups
        self._now_us = now_us
        self._teams = {str(one["team_id"]): one for one in rows.of(TEAMS)}
        self._projects = {str(one["project_id"]): one for one in rows.of(PROJECTS)}
        self._budgets = {str(one["budget_id"]): one for one in rows.of(BUDGETS)}
        self._users = {str(one["user_id"]): one for one in rows.of(USERS)}
        self._labels = {
            **{("team", i): label for i, label in distinct_labels(rows.of(TEAMS), key="team_id", alias="team_alias")},
            **{
                ("project", i): label
                for i, label in distinct_labels(rows.of(PROJECTS), key="project_id", alias="project_alias")
            },
        }

    def add_key(self, made: TakeOver, row: Row) -> None:
        team_id, project_id = (str(row.get(one) or "") for one in ("team_id", "project_id"))
        alias = str(row.get("key_alias") or row.get("key_name") or "")
        digest = digest_of(row)
        name = as_label(alias) or (f"litellm {digest.hex()[:8]}" if digest is not None else "without a name")
        if team_id == PAGES_TEAM:
            return
        team, project = self._teams.get(team_id, {}), self._projects.get(project_id, {})
        why = _why_not(row, digest, team, project, self._now_us)
        if why is not None or digest is None:
            made.left_out.append(f"{name}: {why}")
            return
        notes = [] if name == alias or not alias else [f"it was called {alias!r}"]
        limits, spent, opening = self._limits(row, notes)
        if nothing := [ours for ours, limit in limits.items() if isinstance(limit, int) and limit < 1]:
            made.left_out.append(f"{name}: it may do nothing: its {nothing[0]} is {limits[nothing[0]]}")
            return
        new = NewKey(
            name,
            team=self._label("team", team_id),
            project=self._label("project", project_id),
            tags=_tags(row, notes),
            allowed_models=self._allowed(row, team, project, notes),
            expires_at_us=moment_us(row.get("expires")),
        )
        notes += self._nowhere(row, KEYS)
        made.keys.append(TakenKey(digest, new, limits, spent, notes, opening))

    def add_budget(self, made: TakeOver, scope: Owned, row: Row) -> None:
        its_id = str(row[f"{scope}_id"])
        label = self._label(scope, its_id)
        if label is None or its_id == PAGES_TEAM:
            return
        table, notes = {"team": TEAMS, "project": PROJECTS}[scope], list[str]()
        shared = self._budget_of(row, notes)
        amount = read_usd(_own_or(row, shared, "max_budget"))
        if amount is not None:
            duration = _duration(row, shared)
            window, spent, opening = window_of(duration), self._spent(row, shared), None
            if window.name == "total":
                amount = window.amount(max(Decimal(0), amount - spent))
                notes.append(
                    f"what is left of its budget for good is its budget of each month: here a {scope} has no other"
                )
            elif window.name == "day":
                amount = Window("month", window.share * 30).amount(amount)
                notes.append(f"its budget was for {duration}; here a {scope} has one of a month, 30 times a day's")
                notes += _not_counted(spent)
            else:
                amount, opening = window.amount(amount), self._opening(row, shared, window, spent, notes)
                notes += _told_share(window, duration)
            told = [*notes, *self._nowhere(row, table)]
            made.budgets.append(TakenBudget(scope, label, amount, spent, told, opening))
        else:
            made.notes += [f"{scope} {label}: {note}" for note in (*notes, *self._nowhere(row, table))]
        rates = {
            ours: limit for theirs, ours in RATES.items() if (limit := whole(_own_or(row, shared, theirs))) is not None
        }
        if rates and scope == "team":
            made.rates[label] = rates
        elif rates:
            made.notes.append(
                f"project {label}: its {', '.join(rates)} has no place: keys, teams and models have rates"
            )

    def _label(self, scope: Owned, its_id: str) -> str | None:
        return self._labels.get((scope, its_id), as_label(its_id)) or None

    def _budget_of(self, row: Row, notes: list[str]) -> Row:
        its_id = row.get("budget_id")
        if not its_id:
            return {}
        given = fields_of(row.get("litellm_budget_table")) or self._budgets.get(str(its_id))
        if given is None:
            notes.append(f"its limits of the budget {its_id} are not known: the answers of the API do not have them")
        return given or {}

    def _limits(self, row: Row, notes: list[str]) -> tuple[dict[str, Any], Decimal, TakenOpening | None]:
        """The limits, what it spent there, and what of that counts here."""
        shared = self._budget_of(row, notes)
        limits: dict[str, Any] = {
            ours: limit for theirs, ours in RATES.items() if (limit := whole(_own_or(row, shared, theirs))) is not None
        }
        spent, opening = self._spent(row, shared), None
        if (amount := read_usd(_own_or(row, shared, "max_budget"))) is not None:
            duration = _duration(row, shared)
            window = window_of(duration)
            notes += _told_share(window, duration)
            if window.name == "total":
                notes += [f"of its ${plain(amount)} for good, ${plain(spent)} was spent there"] if spent else []
                amount = max(Decimal(0), amount - spent)
            else:
                opening = self._opening(row, shared, window, spent, notes)
            limits |= {"budget_usd": plain(window.amount(amount)), "budget_window": window.name}
        for name in ("tpd_limit", "model_max_budget", "soft_budget", "allowed_models"):
            if is_said(shared.get(name)) and not is_said(row.get(name)):
                notes.append(f"{name} of its budget: {TOLD.get(name, NO_PLACE)}")
        return limits, spent, opening

    def _opening(self, row: Row, shared: Row, window: Window, spent: Decimal, notes: list[str]) -> TakenOpening | None:
        """Only if the period there and the window here end together and have the same amount: else it is unknown how
        much was spent in this window."""
        ends_at_us = moment_us(row.get("budget_reset_at") or shared.get("budget_reset_at"))
        end = window_end(window.name, self._now_us)
        if window.share != 1 or end is None or ends_at_us is None:
            is_same = False
        else:  # an overdue reset ended the window before this one
            is_same = ends_at_us == microseconds(end) or ends_at_us <= self._now_us
        if not is_same:
            notes += _not_counted(spent)
            return None
        return TakenOpening(window_id(window.name, self._now_us), min(spent, MOST))

    def _spent(self, row: Row, shared: Row) -> Decimal:
        """Since the last reset; zero if the next one is overdue."""
        reset_at_us = moment_us(row.get("budget_reset_at") or shared.get("budget_reset_at"))
        is_over = reset_at_us is not None and reset_at_us <= self._now_us
        return Decimal(0) if is_over else read_usd(row.get("spend")) or Decimal(0)

    def _allowed(self, row: Row, team: Row, project: Row, notes: list[str]) -> tuple[str, ...] | None:
        """What the key, its team or user, and its project all allow."""
        of_team = self._listed(team)
        lists = [self._models.named(self._listed(row), of_team), self._models.named(of_team)]
        lists.append(self._models.named(self._listed(project)))
        if not team:
            lists.append(self._models.named(self._listed(self._users.get(str(row.get("user_id")), {}))))
        return self._models.ours(lists, notes)

    def _listed(self, row: Row) -> list[str]:
        """Its models and those of its groups. An empty list means every model already, so groups add nothing to it."""
        listed = names_of(row.get("models"))
        groups = names_of(row.get("access_group_ids"))
        return [*listed, *(name for one in groups for name in self._groups.get(one, ()))] if listed else []

    def _nowhere(self, row: Row, table: str) -> Iterator[str]:
        known = TAKEN[table] | FACTS[table] | {"litellm_budget_table"}
        for name, value in row.items():
            if name not in known and is_said(value):
                yield f"{name}: {TOLD.get(name, NO_PLACE)}"
        if routes := [one for one in names_of(row.get("allowed_routes")) if one not in MODEL_ROUTES]:
            yield f"allowed_routes ({', '.join(routes)}): a key of ours may call models by every path"
        metadata = fields_of(row.get("metadata"))
        if others := sorted(name for name, value in metadata.items() if name != "tags" and is_said(value)):
            yield f"metadata ({', '.join(others)}): only its tags are taken over"


def _why_not(row: Row, digest: bytes | None, team: Row, project: Row, now_us: int) -> str | None:
    """Why a key is not made."""
    routes = set(names_of(row.get("allowed_routes")))
    if digest is None:
        return "its row has no SHA-256 of a key, so nobody can be let in by it"
    for what, one in (("it", row), ("its team", team), ("its project", project)):
        if one.get("blocked"):
            return f"{what} is blocked there; unblock it and import again, if it is to work"
    expires_at_us = moment_us(row.get("expires"))
    if expires_at_us is not None and expires_at_us <= now_us:
        return "it has expired"
    if routes and routes <= OTHER_ROUTES:
        return f"it is for {', '.join(sorted(routes))} alone; `breakeven keys create --role` makes one that reads"
    return None


def _own_or(row: Row, shared: Row, name: str) -> Any:
    """As in LiteLLM: its own value before that of the budget that it shares with others."""
    return shared.get(name) if row.get(name) is None else row.get(name)


def _duration(row: Row, shared: Row) -> str | None:
    found = _own_or(row, shared, "budget_duration")
    return str(found) if found else None


def _told_share(window: Window, duration: str | None) -> list[str]:
    if window.share == 1:
        return []
    return [f"its budget was for {duration}; here it is for a {window.name}, with as much for the time"]


def _not_counted(spent: Decimal) -> list[str]:
    if not spent:
        return []
    return [
        f"the ${plain(spent)} of its present period there does not count here: it is not a calendar day or month in UTC"
    ]


def _tags(row: Row, notes: list[str]) -> tuple[str, ...]:
    given = names_of(fields_of(row.get("metadata")).get("tags"))
    tags = list(dict.fromkeys(as_label(one) for one in given))
    if tags != given or len(tags) > MOST_TAGS:
        notes.append(
            f"its tags were {', '.join(given)}; here they are at most {MOST_TAGS}, of letters, digits, . _ : / @ -"
        )
    return tuple(one for one in tags if one)[:MOST_TAGS]
