"""What keeps the configured judge from judging shadow answers, in a sentence. Pure."""

from collections.abc import Mapping

from gateway.routing.rules import Rule
from gateway.routing.snapshot import Candidate, Snapshot

SETTING = "shadow_calls.judge"


def judge_problem(name: str, snapshot: Snapshot) -> str | None:
    """None if nothing does: then some rule may send a request to the judge and to two models whose answers it can
    judge."""
    judge = snapshot.candidates.get(name)
    if judge is None:
        return f"{SETTING}: there is no model {name!r} here now, so shadow answers are not judged"
    if judge.specialty is not None or judge.is_simulated:
        what = "is simulated" if judge.is_simulated else f"is for {judge.specialty} alone"
        return f"{SETTING}: {name!r} {what}, so shadow answers are not judged"
    if judge.prices is None and judge.speed is None:
        return f"{SETTING}: the price of {name!r} is not known, so the day's budget allows no call to it"
    if not any(name in (pool := _pool(rule, snapshot.candidates)) and len(pool) > 2 for rule in snapshot.rules):
        return (
            f"{SETTING}: no rule allows {name!r} beside two other models. It sees only requests whose rule allows it, "
            "and judges no answer of its own, so it judges nothing"
        )
    return None


def _pool(rule: Rule, candidates: Mapping[str, Candidate]) -> set[str]:
    """The models that may write text for a request under a rule."""
    named, writers = rule.choose.from_, [one for one in candidates.values() if not (one.specialty or one.is_simulated)]
    pool = set(rule.cascade.escalate_to if rule.cascade is not None else ())
    if isinstance(named, list):
        pool |= set(named)
    else:
        pool |= {one.name for one in writers if named == "any" or one.is_local == (named == "local")}
    return pool & {one.name for one in writers}
