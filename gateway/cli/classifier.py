"""`breakeven classifier`: what is in force; learn from feedback, promote what is shown to help, go back."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from classifier.online.correction import NONE, Correction, learn
from gateway.cli.options import AsJson, instant_us
from gateway.cli.state import AUTHOR, State, ask
from gateway.clock import now_us
from gateway.config.home import find_home
from gateway.errors import ConfigurationError, StateError
from gateway.instants import SECOND_US, moment_of
from gateway.learning.classifier_versions import UNTIL, Active, ClassifierVersions
from gateway.learning.correction import Judged, by_request, correction_name, outcomes, word_on
from gateway.learning.promotion import Verdict, judge
from gateway.learning.shared_versions import SharedVersions
from gateway.rulebook.catalogue import profiles
from gateway.storage.sql.classifier import SqlClassifier
from gateway.storage.sql.entries import SqlEntries
from gateway.storage.sql.feedback import SqlFeedback
from gateway.stores import Feedback

app = typer.Typer(help="The classifier in force: learn, promote, roll back.", no_args_is_help=True)
LEAST_JUDGED = 50
TAUGHT_SHARE = 0.7


@app.command("list")
def show(as_json: AsJson = False) -> None:
    """What is in force, what was before, and what could be promoted."""
    versions = _versions()
    ask(_following(versions))
    history = versions.history()
    if as_json:
        stored = {"artefacts": versions.artefacts(), "corrections": versions.corrections()}
        print(json.dumps({"active": asdict(history[-1]), "history": [asdict(one) for one in history], **stored}))
        return
    for one in history:
        mark = "*" if one is history[-1] else " "
        since = moment_of(one.at_us).strftime("%Y-%m-%d %H:%M UTC") if one.at_us else "always"
        print(f"{mark} {one.artefact} + {one.correction or 'no correction'}  since {since}: {one.why}")
    print(f"artefacts: {', '.join(versions.artefacts())}")
    print(f"corrections: {', '.join(versions.corrections()) or 'none yet; `breakeven classifier learn` makes one'}")


@app.command()
def models(as_json: AsJson = False) -> None:
    """Where each catalogue model's predicted quality comes from: a head, averages, graded prompts, or its name."""
    active = _versions().history()[-1]
    corrected = () if active.correction is None else tuple(_versions().correction(active.correction).shifts)
    origins = ask(_origins)
    if as_json:
        print(
            json.dumps({name: {"origin": origin, "corrected": name in corrected} for name, origin in origins.items()})
        )
        return
    for name, origin in origins.items():
        print(f"{name}: {origin}{', corrected by feedback' if name in corrected else ''}")


@app.command("learn")
def learn_correction(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "--from", help="ISO 8601; only requests since then, for instance since a model was replaced."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a correction from the feedback in the books; it changes nothing until it is promoted."""
    versions = _versions()
    ask(_following(versions))
    since_us = 0 if since is None else instant_us(since)
    judged = [one for one in ask(_gather) if one.entry.intent.accepted_at_us >= since_us]
    said = sum(not one.is_implied for one in judged)
    if said < LEAST_JUDGED:
        those = "answers" if since is None else f"answers since {since}"
        raise StateError(
            f"{said} {those} have feedback; a correction needs {LEAST_JUDGED}: send it to /v1/feedback, "
            "or let a model judge shadow calls (`shadow_calls.judge`)"
        )
    taught = judged[: round(len(judged) * TAUGHT_SHARE)]
    found = learn(outcomes(taught, _correction_of(versions, judged)))
    last = taught[-1].entry.intent
    facts = {"judged": len(taught), "until_request": last.request_id, UNTIL: last.accepted_at_us}
    name = versions.add_correction(found, facts)
    ask(lambda state: SharedVersions(versions, SqlClassifier(state.database)).learned(name))
    if as_json:
        print(json.dumps({"correction": name, "shifts": found.shifts, **facts}))
        return
    print(f"correction {name} from {len(taught)} of {len(judged)} judged answers (the newest are kept to test it on):")
    for model, (level, slope) in found.shifts.items():
        print(f"  {model}: {level:+.2f} logits, {slope:+.2f} more from the easiest to the hardest prompt")
    print(f"next: breakeven classifier promote {name}")


@app.command()
def promote(
    version: Annotated[str, typer.Argument(help="A correction, a stored artefact, or the folder of an artefact.")],
    untested: Annotated[
        str | None,
        typer.Option(help="Promote without a test, for this reason. Artefacts can only be promoted this way."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a version in force if doubly robust evaluation on judged traffic says that it helps; gateways follow."""
    versions = _versions()
    ask(_following(versions))
    active = versions.history()[-1]
    if version in versions.corrections():
        verdict = ask(lambda state: _verdict(state, versions, version, active)) if untested is None else None
        if verdict is not None and verdict.objection is not None:
            raise StateError(f"correction {version} is not promoted: {verdict.objection}")
        why = untested or (verdict.summary if verdict else "")
        chosen = Active(active.artefact, version, why, now_us())
    else:
        is_stored = version in versions.artefacts()
        if not is_stored and not Path(version).is_dir():
            raise StateError(
                f"there is no correction, stored artefact or folder {version!r}; `breakeven classifier list` shows them"
            )
        if untested is None:
            raise ConfigurationError(
                "an artefact reads prompts, which the books do not keep: test it with `breakeven calibrate --labels`, "
                "then promote it with --untested 'what the test said'"
            )
        chosen = Active(version if is_stored else versions.add_artefact(Path(version)), None, untested, now_us())
        verdict = None
    ask(lambda state: SharedVersions(versions, SqlClassifier(state.database)).activate(chosen, author=AUTHOR))
    if as_json:
        told = None if verdict is None else {**asdict(verdict), "objection": verdict.objection}
        print(json.dumps({"active": asdict(chosen), "verdict": told}))
    else:
        print(f"in force: {chosen.artefact} + {chosen.correction or 'no correction'} ({chosen.why})")


@app.command()
def rollback(as_json: AsJson = False) -> None:
    """Back to what was in force before; running gateways follow within a few seconds."""
    versions = _versions()
    active = ask(lambda state: SharedVersions(versions, SqlClassifier(state.database)).rollback(author=AUTHOR))
    if as_json:
        print(json.dumps({"active": asdict(active)}))
    else:
        print(f"in force: {active.artefact} + {active.correction or 'no correction'} ({active.why})")


def _following(versions: ClassifierVersions) -> Callable[[State], Awaitable[bool]]:
    """Brings this home up to what was learned and promoted at other replicas."""
    return lambda state: SharedVersions(versions, SqlClassifier(state.database)).follow()


def _versions() -> ClassifierVersions:
    return ClassifierVersions(find_home().classifier_directory)


def _correction_of(versions: ClassifierVersions, judged: Sequence[Judged]) -> Callable[[str], Correction]:
    """Raises StateError, saying how to go on without it, for one that was lost since `judged` were decided with it."""

    @cache
    def of(classifier_version: str) -> Correction:
        name = correction_name(classifier_version)
        try:
            return NONE if name is None else versions.correction(name)
        except StateError as error:
            intents = (one.entry.intent for one in judged)
            last_us = max(
                one.accepted_at_us for one in intents if correction_name(one.decision.classifier_version) == name
            )
            raise StateError(
                f"judged requests were decided with correction {name}, which neither this home nor the database has: "
                f"restore classifier/corrections/{name}.json from a backup of the home, or learn from later requests "
                f"alone: `breakeven classifier learn --since {moment_of(last_us + SECOND_US):%Y-%m-%dT%H:%M:%SZ}`"
            ) from error

    return of


async def _origins(state: State) -> dict[str, str]:
    document, _ = await state.active_rules()
    catalogue = state.deployment.catalogue.models(document)
    return dict(_versions().open_frozen().bind(profiles(catalogue)).origins)


async def _gather(state: State) -> list[Judged]:
    """Every request with feedback, in the order in which they were accepted."""
    store, entries = SqlFeedback(state.database), SqlEntries(state.database)
    feedback: list[Feedback] = []
    while batch := await store.after(feedback[-1].number if feedback else 0):
        feedback += batch
    found: list[Judged] = []
    said = by_request(feedback)
    console = Console(stderr=True)
    for request, rows in track(said.items(), "Judged requests", len(said), console=console, transient=True):
        entry = await entries.get(request)
        if entry is not None:
            found.append(Judged(entry, *word_on(rows, entry.intent.key_id)))
    return sorted(found, key=lambda one: (one.entry.intent.accepted_at_us, one.entry.intent.request_id))


async def _verdict(state: State, versions: ClassifierVersions, name: str, active: Active) -> Verdict:
    judged = await _gather(state)
    snapshot = await state.snapshot()
    until_us = versions.taught_until_us(name)
    if until_us is None:  # made by an older version, which did not store it
        held = judged[round(len(judged) * TAUGHT_SHARE) :]
    else:
        held = [one for one in judged if one.entry.intent.accepted_at_us > until_us]
    incumbent = NONE if active.correction is None else versions.correction(active.correction)
    try:
        return judge(held, snapshot, versions.correction(name), incumbent, _correction_of(versions, judged))
    except ValueError as error:
        raise StateError(f"correction {name} is not promoted: {error}; gather more feedback") from error
