"""States what is wrong with a form in the words of its field labels, not the API's. Pure; knows no page."""

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
    "purchase_usd": "Or buy the GPUs for, $",
}
LIMITS = {
    "budget_usd": "Budget, $",
    "end_user_budget_usd": "Each end user's budget, $",
    "requests_per_minute": "Requests a minute",
    "tokens_per_minute": "Input tokens a minute",
    "max_parallel_requests": "Requests at once",
    "tier_quotas": "Tier quotas",
}
"""Labels of a key's limits, by the word with which the gateway's sentence about one begins."""
TYPED = {
    "name": "name",
    "team": "team",
    "project": "project",
    "tags": "tags",
    "expires_at_us": "last_day",
    "month_usd": "amount",
    "budget_usd": "budget",
    "end_user_budget_usd": "end_user_budget",
    "requests_per_minute": "requests",
    "tokens_per_minute": "tokens",
    "max_parallel_requests": "at_once",
    "tier_quotas": "quotas",
}
"""The gateway's names of fields, and the form's."""
TOLD = (("needs its name", "name"), ("no tier ", "quotas"))
"""Words of sentences that are about one field but do not name it."""
WHOLE = "body"
"""The gateway's name for the request body as a whole."""


class WrongField(ValueError):
    """What was typed into `field` cannot be sent; the message says why."""

    def __init__(self, field: str, said: str) -> None:
        super().__init__(said)
        self.field = field


def form_problem(error: Exception) -> str:
    """As markup that screen readers announce at once."""
    return f'<p class="be-problem" role="alert">{escape(in_form_words(str(error)))}</p>'


def form_word(said: str) -> str:
    """A message that is no problem; screen readers announce it when they are idle."""
    return f'<p class="be-note be-hint" role="status">{escape(said)}</p>'


def in_form_words(said: str) -> str:
    """Replaces the field in the gateway's `FIELD: what is wrong` by its label; other sentences stay unchanged."""
    field, is_of_field, wrong = said.partition(": ")
    if is_of_field and field == WHOLE:
        return wrong[:1].upper() + wrong[1:]
    name = FIELDS.get(field.partition(".")[0]) if is_of_field else None
    limit, _, rest = wrong.partition(" ")
    if field == "limits" and limit in LIMITS:
        return f"{LIMITS[limit]}: {rest}"
    return said if name is None else f"{name}: {wrong}"


def field_of(said: str, asked: str | None) -> str | None:
    """The form's field that the gateway's sentence about its field `asked` is about; None if it is not about one."""
    for words, field in TOLD:
        if words in said:
            return field
    names = [(asked or "").partition(".")[0], *said.partition(": ")[2].split(" ", 1)[:1]]
    return next((TYPED[name] for name in names if name in TYPED), None)
