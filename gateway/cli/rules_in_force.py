"""Says whether this machine's gateway decides by rules that were just activated, and what to do if it does not."""

import time
from collections.abc import Callable, Iterable

import httpx
from prometheus_client.samples import Sample

from gateway.cli.gateway_metrics import samples
from gateway.telemetry.rules_in_force import IN_FORCE, REFUSED, RULES

PATIENCE_SECONDS = 5.0
"""The gateway looks for new rules twice a second; its workers write their metrics every two."""
LOOK_SECONDS = 0.25


def how_it_was_taken(
    url: str, version: str, *, look: Callable[[str, str], list[Sample]] = samples, patience: float = PATIENCE_SECONDS
) -> str:
    """Waits until every worker has taken the version over, one has refused it, or `patience` seconds have passed."""
    until = time.monotonic() + patience
    while True:
        try:
            found = look(url, RULES)
        except (httpx.HTTPError, ValueError):
            return f"No gateway answers at {url}: it takes them over when it is started."
        in_force, refused = _versions(found, IN_FORCE), _versions(found, REFUSED)
        if in_force == {version} or version in refused or time.monotonic() > until:
            return _said(url, version, in_force, is_refused=version in refused)
        time.sleep(LOOK_SECONDS)


def _said(url: str, version: str, in_force: set[str], *, is_refused: bool) -> str:
    if in_force == {version}:
        return f"The gateway at {url} decides by them."
    others = ", ".join(sorted(in_force - {version})) or "no rules yet"
    if is_refused:
        return (
            f"The gateway at {url} does NOT decide by them: it keeps {others}, because the new rules name something "
            "that it did not know when it was started. Restart it, or `breakeven rules rollback`; its log and the page "
            "Routing rules say what that is."
        )
    return f"The gateway at {url} has not taken them over yet and decides by {others}; see `breakeven doctor`."


def _versions(found: Iterable[Sample], state: str) -> set[str]:
    return {one.labels["version"] for one in found if one.labels["state"] == state}
