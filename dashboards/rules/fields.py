"""The fields of a rule's form, read from the published JSON schema: a new condition appears by itself. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dashboards.rules.completion import resolve

Kind = Literal["range", "number", "yes_no", "choice", "choices", "words", "words_or_choice"]
RANGE = {"at_least", "at_most"}
UNITS = {"_usd": "$", "_seconds": "s"}


@dataclass(frozen=True, slots=True)
class Field:
    """`options` are the closed set of a choice, or keywords that are allowed instead of a list of words."""

    name: str
    kind: Kind
    options: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def label(self) -> str:
        for ending, unit in UNITS.items():
            if self.name.endswith(ending):
                return f"{self.name.removesuffix(ending).replace('_', ' ').capitalize()}, {unit}"
        return self.name.replace("_", " ").capitalize()


def rule_fields(schema: Mapping[str, Any], part: Literal["when", "choose"]) -> list[Field]:
    """The fields of a rule's conditions or of its choice, in the schema's order. What no form can show is left out."""
    rule = next(resolve(schema, schema["properties"]["rules"]["items"]))
    found: list[Field] = []
    for one in resolve(schema, rule["properties"][part]):
        fields = (_field(schema, name, value) for name, value in one.get("properties", {}).items())
        found += [field for field in fields if field is not None]
    return found


def _field(schema: Mapping[str, Any], name: str, value: Mapping[str, Any]) -> Field | None:
    forms = list(resolve(schema, value))
    words = any(_is_words(schema, form) for form in forms)
    options = tuple(_options(forms))
    if words:
        return Field(name, "words_or_choice" if options else "words", options)
    if options:
        return Field(name, "choice", options)
    numbers = [form for form in forms if form.get("type") in ("number", "integer")]
    others = [form for form in forms if form not in numbers and form.get("type") != "string"]
    form = forms[0] if len(forms) == 1 else numbers[0] if numbers and not others else {}  # an amount, also as text
    match form.get("type"):
        case "array":
            return Field(name, "choices", tuple(_options(list(resolve(schema, form.get("items", {}))))))
        case "object" if set(form.get("properties", {})) == RANGE:
            return Field(name, "range")
        case "number" | "integer":
            low = form.get("minimum", form.get("exclusiveMinimum"))
            return Field(name, "number", low=low, high=form.get("maximum"))
        case "boolean":
            return Field(name, "yes_no")
        case _:
            return None


def _is_words(schema: Mapping[str, Any], form: Mapping[str, Any]) -> bool:
    """A list of names that are not a closed set."""
    inside = list(resolve(schema, form.get("items", {}))) if form.get("type") == "array" else []
    return any(one.get("type") == "string" and "enum" not in one for one in inside)


def _options(forms: list[Mapping[str, Any]]) -> Iterator[str]:
    for form in forms:
        yield from form.get("enum", (form["const"],) if "const" in form else ())


def with_value(content: Mapping[str, Any], part: str, name: str, value: Any) -> dict[str, Any]:
    """A rule with one field set, or removed if `value` is None. A `when` without conditions is removed as well."""
    fields = {**(content.get(part) or {})}
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = value
    changed = {key: fields if key == part else one for key, one in content.items()}
    if part not in content:
        order = ("name", "when", "choose")
        changed = {key: {**content, part: fields}[key] for key in order if key in content or key == part}
    if part == "when" and not fields:
        changed.pop("when", None)
    return changed
