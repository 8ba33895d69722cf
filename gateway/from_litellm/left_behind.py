"""Reports what else is in LiteLLM's database and cannot be taken over, in sentences. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.counted import counted
from gateway.from_litellm.fields import KEYS, MEMBERSHIPS, OLD_SECRETS, ORGANIZATIONS, USERS
from gateway.from_litellm.rows import Rows, is_said, moment_us

PAGES_TEAM: Final = "litellm-dashboard"
"""The team of the keys that LiteLLM makes for sessions of its web pages."""
LIMITS: Final = ("max_budget", "tpm_limit", "rpm_limit", "max_parallel_requests", "budget_id")
MOST_NAMES: Final = 10


def left_behind(rows: Rows, *, counts_tokens: bool, now_us: int) -> Iterator[str]:
    """`counts_tokens`: whether anything that is taken over has a limit of tokens a minute."""
    keys = [row for row in rows.of(KEYS) if row.get("team_id") != PAGES_TEAM]
    if sessions := len(rows.of(KEYS)) - len(keys):
        yield f"left out: {counted(sessions, 'key')} of sessions of LiteLLM's pages"
    older = sum((moment_us(one.get("revoke_at")) or 0) > now_us for one in rows.of(OLD_SECRETS))
    if older:
        secrets = counted(older, "older secret")
        yield f"left out: {secrets} that LiteLLM still takes after a rotation; the newest of each key works here"
    if counts_tokens:
        yield "tokens_per_minute counts input tokens here; LiteLLM's tpm counts those of answers too"
    yield from _limits_of_others(rows)
    if users := sorted({str(row["user_id"]) for row in keys if row.get("user_id")}):
        yield f"keys have no user here: tags and projects say whose a cost is. Users of keys: {_some(users)}"
    if not rows.is_whole:
        yield (
            "the API's answers tell of no projects, users, organizations and shared budgets, and what those limit is "
            "not known here; --database reads them"
        )


def _limits_of_others(rows: Rows) -> Iterator[str]:
    for table, what, name in ((ORGANIZATIONS, "organization", "organization_alias"), (USERS, "user", "user_id")):
        for row in rows.of(table):
            if limits := [one for one in LIMITS if is_said(row.get(one))]:
                yield (
                    f"{what} {row.get(name)}: {', '.join(limits)} has no place: keys, teams, projects and everything "
                    "together have budgets here"
                )
    members = Counter(str(one.get("team_id")) for one in rows.of(MEMBERSHIPS) if one.get("budget_id"))
    for team_id, count in members.items():
        yield f"team {team_id}: budgets of {count} of its members have no place: each of their keys can have its own"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
