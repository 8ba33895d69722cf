"""What one check of `breakeven doctor` found. Knows no check."""

from collections.abc import Callable
from dataclasses import dataclass

import httpx

from gateway.errors import BreakevenError


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. `fix` says what to do about a failure; None if there is nothing to do."""

    name: str
    is_ok: bool
    detail: str
    fix: str | None = None


def attempt(name: str, check: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(name, True, check())
    except (BreakevenError, OSError, httpx.HTTPError) as error:
        return Finding(name, False, str(error) or type(error).__name__, fix)
