"""A form's problem is stated with the form's own labels, as escaped text."""

import pytest

from dashboards.forms.problem import field_of, form_problem, in_form_words


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("month_usd: must be above 0.", "Dollars a month: must be above 0."),
        ("tags.0: is too long: the maximum length is 64.", "Tags: is too long: the maximum length is 64."),
        ("limits: budget_usd cannot be negative.", "Budget, $: cannot be negative."),
        ("limits: budget_usd is not an amount.", "Budget, $: is not an amount."),
        ("limits: requests_per_minute must be at least 1.", "Requests a minute: must be at least 1."),
        ("purchase_usd: must be at most 100000000.", "Or buy the GPUs for, $: must be at most 100000000."),
        ("body: a team's budget needs its name.", "A team's budget needs its name."),
        ("There is no tier 'x' in breakeven.yaml; there are: none.", None),
        ("The gateway did not answer (ReadTimeout).", None),
        ("somewhere: else", None),
        ("", None),
    ],
)
def test_a_field_is_called_as_it_stands_over_it(said: str, shown: str | None) -> None:
    assert in_form_words(said) == (said if shown is None else shown)


def test_it_is_text() -> None:
    assert form_problem(ValueError("name: <b>")) == '<p class="be-problem" role="alert">Name: &lt;b&gt;</p>'


@pytest.mark.parametrize(
    ("said", "asked", "field"),
    [
        ("name: must not be empty.", "name", "name"),
        ("tags.1: is too long: the maximum length is 64.", "tags.1", "tags"),
        ("A key of the role 'lead' reads what its team spends: name the team.", "team", "team"),
        ("limits: budget_usd is not an amount of dollars such as 25 or 25.50.", "limits", "budget"),
        ("limits: end_user_budget_usd cannot be negative.", "limits", "end_user_budget"),
        ("limits: requests_per_minute must be at least 1.", "limits", "requests"),
        ("There is no tier 'x' in breakeven.yaml; there are: none.", "limits", "quotas"),
        ("month_usd: must be above 0.", "month_usd", "amount"),
        ("body: the budget of a team or project needs its name; the one of scope `all` has none.", None, "name"),
        ("The key 'ann' was revoked.", None, None),
        ("", None, None),
    ],
)
def test_the_field_that_is_wrong_is_known(said: str, asked: str | None, field: str | None) -> None:
    assert field_of(said, asked) == field
