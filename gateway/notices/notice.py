"""What a budget notice says, and when one is due. Pure: knows no store, no clock and no address."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.instants import moment_of
from gateway.limits.values import WindowName, window_end, window_of_id
from gateway.money import format_usd, show_usd, usd

NoticeScope = Literal["all", "team", "project", "key"]
Document = dict[str, str | float | int | bool | dict[str, list[str]] | None]
"""Plain fields, and those that chat services need."""

QUIET: dict[str, list[str]] = {"parse": []}
"""Discord's setting that no name in this text notifies anyone."""
MARKUP = str.maketrans({"<": "‹", ">": "›"})
"""Slack reads commands and links between these characters, and team names may contain them."""
WHILE: dict[WindowName, str] = {"day": "today", "month": "this month", "total": "in all"}
FORECAST = 0
"""In place of a share: the window is likely to exceed the budget."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies what is announced only once: this budget at this amount, in this window, at this share or FORECAST.

    `name` is a key's id, a team, a project, or empty for everything; `window_id` is a gateway.limits.values.window_id.
    """

    scope: NoticeScope
    name: str
    window_id: str
    amount_pico_usd: int
    share_per_mille: int


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """One budget and its spending in the current window. `shown` is its display name."""

    scope: NoticeScope
    name: str
    shown: str
    window_id: str
    amount_pico_usd: int
    spent_pico_usd: int
    stops: bool

    def mark(self, share_per_mille: int) -> Mark:
        return Mark(self.scope, self.name, self.window_id, self.amount_pico_usd, share_per_mille)


def due(spent: BudgetSpent, shares_per_mille: Iterable[int], told: Iterable[Mark]) -> Mark | None:
    """The highest share reached, unless it or a higher one was announced; shares passed at once give one notice.

    A budget of nothing has no shares.
    """
    if spent.amount_pico_usd <= 0:
        return None
    thousandfold = spent.spent_pico_usd * 1000
    reached = [share for share in shares_per_mille if thousandfold >= share * spent.amount_pico_usd]
    if not reached:
        return None
    mark = spent.mark(max(reached))
    is_told = any(
        (one.scope, one.name, one.window_id, one.amount_pico_usd)
        == (mark.scope, mark.name, mark.window_id, mark.amount_pico_usd)
        and one.share_per_mille >= mark.share_per_mille
        for one in told
    )
    return None if is_told else mark


def document(spent: BudgetSpent, mark: Mark, *, page: str | None, is_test: bool = False) -> Document:
    """The document to post. Money is exact decimal text in dollars, times are ISO 8601 in UTC; `text` and `content`
    hold the sentence for Slack and Mattermost, and for Discord."""
    kind, began_us = window_of_id(mark.window_id)
    sentence = _sentence(spent, kind, window_end(kind, began_us), page)
    sentence = ("A test, no budget of yours: " if is_test else "") + sentence
    event: Document = {"event": "budget_share_reached", "is_test": is_test}
    return event | budget_fields(spent, page) | {"reached_share": mark.share_per_mille / 1000} | in_words(sentence)


def budget_fields(spent: BudgetSpent, page: str | None) -> Document:
    """Fields about the budget, common to all notices."""
    kind, began_us = window_of_id(spent.window_id)
    end = window_end(kind, began_us)
    return {
        "scope": spent.scope,
        "name": spent.shown,
        "key_id": spent.name if spent.scope == "key" else None,
        "window": kind,
        "window_starts": None if kind == "total" else _iso(moment_of(began_us)),
        "window_ends": None if end is None else _iso(end),
        "amount_usd": format_usd(spent.amount_pico_usd),
        "spent_usd": format_usd(spent.spent_pico_usd),
        "spent_share": round(spent.spent_pico_usd / spent.amount_pico_usd, 6),
        "stops": spent.stops,
        "page": page,
    }


def in_words(sentence: str) -> Document:
    """The sentence for chat services; names in it trigger nothing."""
    return {"text": sentence, "content": sentence, "allowed_mentions": QUIET}


def _sentence(spent: BudgetSpent, kind: WindowName, end: datetime | None, page: str | None) -> str:
    money = f"{show_usd(usd(spent.spent_pico_usd))} of {show_usd(usd(spent.amount_pico_usd))}"
    percent = spent.spent_pico_usd * 100 // spent.amount_pico_usd  # rounded down: 100 % appears only when reached
    until = "" if end is None else f"; its window ends at {end:%H:%M} UTC on {end.day} {end:%b %Y}"
    return f"The budget of {whose(spent)} is {percent} % spent {WHILE[kind]}, {money}{until}. {what_then(spent, page)}"


def whose(spent: BudgetSpent) -> str:
    """The budget's owner as the sentence names it."""
    return "everything" if spent.scope == "all" else f"{spent.scope} {spent.shown.translate(MARKUP)}"


def what_then(spent: BudgetSpent, page: str | None) -> str:
    """The end of the sentence."""
    then = "What would pass it is refused." if spent.stops else "It warns only: requests go on."
    return f"{then} {page}" if page else then


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
