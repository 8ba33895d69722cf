"""`breakeven check`: is the configuration right? Offline; starts and calls nothing."""

import json
import re
from collections.abc import Container, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson
from gateway.cli.show_table import show_table
from gateway.clock import now_us
from gateway.composition.deployment import Deployment, load_deployment
from gateway.config.home import find_home
from gateway.config.settings import Settings, read_text
from gateway.learning.classifier_versions import ClassifierVersions
from gateway.learning.judge_model import judge_problem
from gateway.money import format_usd
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.price import UnknownServiceTier, service
from gateway.pricing.price_figures import terms_text, unit_figures
from gateway.routing.snapshot import Candidate
from gateway.rulebook.catalogue import profiles
from gateway.rulebook.versions import text_version

_DEARER: Final[Mapping[str, str]] = {
    r"(?:mtls-)?[a-z]{2}\.api\.openai\.com": r"gpt-(?:5\.(?:[4-9]|\d\d)|[6-9]|\d\d)",
    r"api\.[a-z]{2}\.mistral\.ai": "",
}
"""Regional hosts that charge 10 % more and say nothing of it, and the models for which they do. xAI's answers say."""


def command(as_json: AsJson = False) -> None:
    """Validate breakeven.yaml, rules.yaml, price overrides and the provider keys in the environment."""
    deployment = load_deployment(find_home())
    snapshot = deployment.catalogue.snapshot(
        deployment.rules, deployment.prices, classifier_version="-", at_us=now_us()
    )
    rules_version = text_version(read_text(deployment.home.rules_file))
    notes = list(_limits_of_nothing(deployment.settings, snapshot.candidates))
    notes += _dearer_regions(deployment.settings, snapshot.candidates)
    notes += _unknown_evidence(deployment)
    judge = deployment.settings.shadow_calls.asked_judge
    if judge is not None and (problem := judge_problem(judge, snapshot)):
        notes.append(problem)
    if as_json:
        print(
            json.dumps(
                {
                    "ok": True,
                    "home": str(deployment.home.root),
                    "rules_version": rules_version,
                    "prices_version": snapshot.prices_version,
                    "rules": [rule.name for rule in snapshot.rules],
                    "models": {name: _shown_price(one) for name, one in snapshot.candidates.items()},
                    "notes": notes,
                }
            )
        )
        return
    table = Table("model", "backend", "window", "price per million tokens, in / out", title="Models")
    for name, candidate in snapshot.candidates.items():
        table.add_row(name, candidate.backend, f"{candidate.context_window:,}", _shown_price(candidate))
    console = Console()
    show_table(table)
    console.print(f"Rules {rules_version}: {', '.join(rule.name for rule in snapshot.rules)}")
    for note in notes:
        console.print(f"Note: {note}")
    console.print(f"{deployment.home.config_file} and {deployment.home.rules_file} are valid.")


def _limits_of_nothing(settings: Settings, models: Container[str]) -> Iterator[str]:
    """Names that may be misspelt, or are of a provider whose key is not set here."""
    named = {f"tiers.{tier}": names for tier, names in settings.tiers.items()}
    for where, names in {"limits.models": settings.limits.models, **named}.items():
        for name in names:
            if name not in models:
                yield f"{where}: there is no model {name!r} here now, so this limits nothing"


def _unknown_evidence(deployment: Deployment) -> Iterator[str]:
    """Models whose quality is predicted from something else than rules.yaml says."""
    models = deployment.catalogue.models(deployment.rules)
    stated = {name: one for name, one in models.items() if one.head is not None or one.benchmarks}
    if not stated:
        return
    versions = ClassifierVersions(deployment.home.classifier_directory)
    for name, origin in versions.open_frozen().bind(profiles(stated)).origins.items():
        if not origin.startswith(("head ", "public benchmark averages")):
            head = stated[name].head
            what, used = "benchmarks" if head is None else "head", origin.removeprefix(f"no head {head!r}: ")
            yield f"models.{name}.{what}: not known to the classifier; used instead: {used}"


def _dearer_regions(settings: Settings, models: Mapping[str, Candidate]) -> Iterator[str]:
    for name, block in settings.backends.items():
        host = urlsplit(block.base_url).hostname or ""
        dearer = next((models for pattern, models in _DEARER.items() if re.fullmatch(pattern, host)), None)
        listed = [
            model
            for model, one in models.items()
            if dearer is not None
            and one.backend == name
            and re.match(dearer, one.upstream_model)
            and one.prices is not None
            and not one.prices.discount
        ]
        if listed:
            yield (
                f"backends.{name}: {host} charges 10 % more than the list price, which no answer of it tells. "
                f"Give {', '.join(listed)} `discount: -0.1` in price_overrides"
            )


def _shown_price(candidate: Candidate) -> str:
    if candidate.speed is not None:
        return f"your own engine, ${format_usd(candidate.speed.gpu_hour_pico_usd, places=4)} an hour"
    if candidate.prices is None and candidate.priced_as is not None:
        return (
            "unknown: requests will be booked with cost NULL, as `priced_as` is PROVIDER/MODEL of the price list, "
            f"which has no {candidate.priced_as!r}"
        )
    if candidate.prices is None:
        return "unknown: requests will be booked with cost NULL until `priced_as` or `price_overrides` names one"
    rates = candidate.prices.rates
    fees = [f"${usd} {name}" for name, usd in unit_figures(candidate.prices)]
    text = ", ".join(fees) or f"${rates.input / 1e6:.4g} / ${rates.output / 1e6:.4g}"
    if terms := terms_text(candidate.prices.discount):
        text += f", {terms}"
    if candidate.asked_tier is not None:
        text += _asked(candidate.asked_tier, candidate.prices)
    return f"{text} (simulated)" if candidate.is_simulated else text


def _asked(tier: str, prices: ModelPrices) -> str:
    """What the service tier that a block asks for makes of these prices."""
    try:
        ladder, multiplier = service(prices, tier)
    except UnknownServiceTier:
        return f"; asked for in {tier}, which has no price: requests will be booked with cost NULL"
    read, written = (float(rate * multiplier) / 1e6 for rate in (ladder.base.input, ladder.base.output))
    return f"; asked for in {tier}: ${read:.4g} / ${written:.4g}"
