"""What is wrong with a form, in the words that stand over its fields and not in the API's. Pure; knows no page."""

from html import escape

FIELDS = {
    "name": "Name",
    "team": "Team",
    "project": "Project",
    "tags": "Tags",
    "allowed_models": "Models",
    "limits": "Limits",
    "month_usd": "Dollars a month",
    "overlap_seconds": "The old secret works for",
}
WHOLE = "body"
"""How the gateway calls all of what was sent."""


def form_problem(error: Exception) -> str:
    """As markup, read out at once."""
    return f'<p class="be-problem" role="alert">{escape(in_form_words(str(error)))}</p>'


def form_word(said: str) -> str:
    """What is no problem, read out when nothing else is."""
    return f'<p class="be-note be-hint" role="status">{escape(said)}</p>'


def in_form_words(said: str) -> str:
    """Of the gateway's `FIELD: what is wrong`; what has no such field is left as it is."""
    field, is_of_field, wrong = said.partition(": ")
    if is_of_field and field == WHOLE:
        return wrong[:1].upper() + wrong[1:]
    name = FIELDS.get(field.partition(".")[0]) if is_of_field else None
    return said if name is None else f"{name}: {wrong}"
