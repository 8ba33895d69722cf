"""A form's problem is told in its own words, as text."""

import pytest

from dashboards.form_problem import form_problem, in_form_words


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("month_usd: must be above 0.", "Dollars a month: must be above 0."),
        ("tags.0: is too long: its greatest length is 64.", "Tags: is too long: its greatest length is 64."),
        ("limits: a budget cannot be negative.", "Limits: a budget cannot be negative."),
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
