"""Parses a rules file, or reports what is wrong with it, down to the line. Opens no file."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, cast

from pydantic import ValidationError

from gateway.errors import ConfigurationError
from gateway.routing.rules import AUTO, CASCADED, Range, Rule, RulesDocument, When
from gateway.yaml_document import meant, parse_yaml, path_of, problem_among

MAX_BYTES = 1_000_000
MOST_COMPARED = 100_000
"""Pairs of rules: covers four hundred rules completely."""


ANY_OF = ("key", "team", "project", "operation", "model")
"""Conditions that are met by any one of the listed values."""


def parse_rules(text: str, *, file: str = "rules.yaml", known_models: frozenset[str] = frozenset()) -> RulesDocument:
    """Validate a rules file. `known_models` are those that the environment adds to the file's own.

    Raises ConfigurationError with file, line and field for the first problem: unknown fields, unknown models, rules
    that can never match.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ConfigurationError(f"is larger than {MAX_BYTES:,} bytes", file=file)
    written = parse_yaml(text, file=file)
    cause: ValidationError | None = None
    try:
        document = RulesDocument.model_validate(written.value)
        wrong = next(_wrong_in(document, known_models | document.models.keys()), None)
        if wrong is None:
            return document
    except ValidationError as error:
        wrong, cause = _first_of(error), error
    field = ".".join(str(part) for part in wrong.path)
    raise ConfigurationError(wrong.problem, file=file, line=written.line(wrong.path), field=field) from cause


class Wrong(NamedTuple):
    """What is wrong, and where in the document."""

    problem: str
    path: tuple[str | int, ...]


def _first_of(error: ValidationError) -> Wrong:
    """Prefers misspelt fields: they often also appear as missing ones."""
    found = error.errors(include_url=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    problem = problem_among(found, first) + meant(first, RulesDocument)
    return Wrong(problem, tuple(part for part in path_of(first["loc"]) if part != "from_"))


def _wrong_in(document: RulesDocument, names: Collection[str]) -> Iterator[Wrong]:
    """Problems that no single field shows, in the order of the file."""
    if AUTO in document.models:
        yield Wrong('"auto" is the routed name and cannot be a model', ("models", "auto"))
    last = len(document.rules) - 1
    above, used = _Above(), set[str]()
    for index, rule in enumerate(document.rules):
        here = ("rules", index)
        if rule.name in used:
            yield Wrong(f"the name {rule.name!r} is used twice", (*here, "name"))
        used.add(rule.name)
        yield from _unknown_models(rule, names, here)
        if rule.cascade is not None and (objection := _cascade_objection(rule)):
            yield Wrong(objection, (*here, "cascade"))
        if index == last and rule.when is not None:
            problem = "the last rule must have no `when`, or some request would match nothing"
            yield Wrong(problem, (*here, "when"))
        if index != last and rule.when is None:
            yield Wrong("every rule after this one can never match: only the last may have no `when`", here)
        if rule.when is not None:
            if (taker := above.taker(rule.when)) is not None:
                yield Wrong(f"can never match: {taker!r} above takes every such request", here)
            above.add(rule.name, rule.when)


class _Above:
    """The rules so far, indexed by the values that a rule must name to be shadowed by them: comparing every pair of
    thousands takes seconds. Rules that name nothing are compared up to MOST_COMPARED times."""

    def __init__(self) -> None:
        self._left = MOST_COMPARED
        self._rules: list[tuple[str, When]] = []
        self._naming: dict[tuple[str, str], list[int]] = {}
        self._others: list[int] = []

    def add(self, name: str, when: When) -> None:
        place, conditions = len(self._rules), when.conditions
        self._rules.append((name, when))
        field = next((field for field in ("tags", *ANY_OF) if field in conditions), None)
        if field is None:
            self._others.append(place)
            return
        named = cast("Sequence[str]", conditions[field])
        for one in named if field in ANY_OF else named[:1]:
            self._naming.setdefault((field, one), []).append(place)

    def taker(self, when: When) -> str | None:
        """The name of the first rule that matches everything `when` matches."""
        if self._left <= 0:
            return None
        places = set(self._others)
        for field, given in {"model": [AUTO], **when.conditions}.items():
            if not isinstance(given, Range):
                places.update(
                    *(self._naming.get((field, one), ()) for one in (given[:1] if field in ANY_OF else given))
                )
        self._left -= len(places)
        taking = (self._rules[place] for place in sorted(places))
        return next((name for name, wide in taking if implies(when, wide)), None)


def _unknown_models(rule: Rule, names: Collection[str], here: tuple[str | int, ...]) -> Iterator[Wrong]:
    lists: list[tuple[tuple[str, str], list[str]]] = []
    if isinstance(rule.choose.from_, list):
        lists.append((("choose", "from"), rule.choose.from_))
    if rule.cascade is not None:
        lists.append((("cascade", "escalate_to"), rule.cascade.escalate_to))
    for field, models in lists:
        for position, model in enumerate(models):
            if model not in names:
                yield Wrong(_unknown(model, names), (*here, *field, position))


def _unknown(model: str, names: Collection[str]) -> str:
    known = ", ".join(sorted(names)) or "none"
    return f"unknown model {model!r}; known: {known}. A provider's are known only while its key is set"


def _cascade_objection(rule: Rule) -> str | None:
    """Why a rule's cascade can never happen."""
    assert rule.cascade is not None
    when, asked = rule.when or When.model_construct(), rule.choose.from_
    if isinstance(asked, list) and set(asked) <= set(rule.cascade.escalate_to):
        return "every model that `choose` may ask is one to escalate to: name a cheaper one in choose.from"
    if "streaming" in (when.needs or ()):
        return "can never happen: this rule takes streams only, and the answer of a stream cannot be verified first"
    if when.operation is not None and CASCADED not in when.operation:
        return f"can never happen: only {CASCADED} is verified, and this rule takes other operations"
    return None


def implies(narrow: When, wide: When) -> bool:
    """Whether every request that meets `narrow` also meets `wide`."""
    if not set(narrow.model or (AUTO,)) <= set(wide.model or (AUTO,)):
        return False
    for field in wide.model_fields_set - {"model"}:
        demanded, given = getattr(wide, field), getattr(narrow, field)
        if demanded is None:
            continue
        if given is None:
            return False
        if isinstance(demanded, Range):
            if not demanded.contains(given):
                return False
        elif field in ("tags", "needs"):
            if not set(demanded) <= set(given):
                return False
        elif not set(given) <= set(demanded):
            return False
    return True
