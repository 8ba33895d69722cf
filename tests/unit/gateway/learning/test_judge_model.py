"""What keeps a judge from judging is said before any money is spent."""

from typing import Any

import pytest

from gateway.learning.judge_model import judge_problem
from tests.builders import make_candidate, make_snapshot


def judge(**given: Any) -> list[Any]:
    return [make_candidate(name, **(given if name == "j" else {})) for name in ("a", "b", "j")]


@pytest.mark.parametrize(
    ("choose", "given", "said"),
    [
        ("{from: any}", {}, None),
        ("{from: hosted}", {}, None),
        ("{from: [a, b, j]}", {}, None),
        ("{from: [a, b]}, cascade: {escalate_to: [j]}", {}, None),
        ("{from: local}", {}, "no rule allows 'j' beside two other models"),
        ("{from: [a, j]}", {}, "no rule allows 'j' beside two other models"),
        ("{from: [a, b]}", {}, "no rule allows 'j' beside two other models"),
        ("{from: any}", {"prices": None}, "the price of 'j' is not known"),
        ("{from: any}", {"is_simulated": True}, "'j' is simulated"),
        ("{from: any}", {"supports": frozenset({"rerank"})}, "'j' is for rerank alone"),
    ],
)
def test_a_judge_needs_a_rule_that_allows_it_beside_two_models(
    choose: str, given: dict[str, Any], said: str | None
) -> None:
    snapshot = make_snapshot(f"version: 1\nrules: [{{name: r, choose: {choose}}}]", judge(**given))
    found = judge_problem("j", snapshot)
    assert found is None if said is None else found is not None and said in found
    assert "there is no model 'k' here now" in (judge_problem("k", snapshot) or "")
