"""The checks of `breakeven doctor` that read settings: provider keys, prompt caching, notices and the judge."""

import os
from collections.abc import Iterator

from gateway.cli.doctor.finding import Finding
from gateway.cli.state import ask
from gateway.clock import now_us
from gateway.composition.deployment import load_deployment
from gateway.config.home import Home
from gateway.config.providers import hosted_from_environment, load_providers
from gateway.config.settings import Settings
from gateway.errors import BreakevenError
from gateway.instants import moment_of
from gateway.learning.judge_model import judge_problem
from gateway.storage.sql.notices import SqlNotices


def provider_keys(settings: Settings | None) -> Finding:
    found = [provider.name for provider in hosted_from_environment(os.environ)]
    if found:
        return Finding("provider keys", True, ", ".join(found))
    names = ", ".join(provider.key_env for provider in load_providers())
    own = list(settings.backends) if settings is not None else []
    if settings is None or settings.engine.is_enabled:
        own.append("your own engine")
    answering = f"only {', '.join(own)} can answer" if own else "no model can answer"
    return Finding("provider keys", False, f"none: {answering}. Any of {names} adds hosted models")


def prompt_caching(settings: Settings | None) -> Iterator[Finding]:
    """For backends that cache only what a request marks."""
    blocks = {} if settings is None else settings.backends
    waiting = [name for name, block in blocks.items() if block.wire_format == "anthropic"]
    waiting += [one.name for one in hosted_from_environment(os.environ) if one.wire_format == "anthropic"]
    asked = {} if settings is None else settings.prompt_caching
    marked = [name for name in waiting if asked.get(name) == "auto"]
    if unmarked := [name for name in waiting if name not in marked]:
        detail = (
            f"{', '.join(unmarked)} caches only what callers mark. Clients of OpenAI's format mark nothing, so they "
            f"pay every turn in full; `prompt_caching: {{{unmarked[0]}: auto}}` marks prompts for them "
            "(docs/backends.md)"
        )
        yield Finding("prompt caching", False, detail)
    elif marked:
        yield Finding("prompt caching", True, f"prompts for {', '.join(marked)} are marked where their callers do not")


def judge(home: Home, name: str) -> Finding:
    """Whether the model that judges shadow answers can."""
    deployment = load_deployment(home)
    snapshot = deployment.catalogue.snapshot(
        deployment.rules, deployment.prices, classifier_version="-", at_us=now_us()
    )
    problem = judge_problem(name, snapshot)
    fix = "name another model there, or set its provider's key, its price or the rules' models"
    return Finding("judge", problem is None, problem or f"{name} judges shadow answers", fix)


def notices(settings: Settings | None) -> Finding:
    """Whether a webhook is configured, and whether the last notice reached it. Sends nothing."""
    if settings is None or not settings.notices.webhook:
        return Finding("notices", False, "no webhook: a budget that is nearly spent shows only on the page Budgets")
    shares = ", ".join(f"{share / 10:g} %" for share in settings.notices.shares_per_mille)
    told = f"a webhook is told at {shares} of a budget; `breakeven notices test` tries it"
    try:
        state = ask(lambda state: SqlNotices(state.database).state(), is_looking=True)
    except (BreakevenError, OSError):  # another check reports it
        return Finding("notices", True, told)
    if state.failing_since_us is None:
        return Finding("notices", True, told)
    since, last = (f"{moment_of(at or 0):%Y-%m-%d %H:%M}" for at in (state.failing_since_us, state.failed_at_us))
    problem = f"one has waited since {since} UTC, last tried {last} UTC: {state.problem}"
    return Finding("notices", False, problem, "correct `notices` in breakeven.yaml, then `breakeven notices test`")
