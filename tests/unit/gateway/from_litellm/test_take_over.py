"""LiteLLM's keys, teams and budgets as ours: nothing allows more than it did, nothing is dropped without a word."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from gateway.errors import ConfigurationError
from gateway.from_litellm.allowed import Models
from gateway.from_litellm.fields import ACCESS_GROUPS, BUDGETS, KEYS, MEMBERSHIPS, ORGANIZATIONS, PROJECTS, TEAMS, USERS
from gateway.from_litellm.rows import Rows, parse_answers
from gateway.from_litellm.take_over import TakenKey, TakenOpening, TakeOver, take_over, without_openings
from gateway.money import MOST_USD
from gateway.stores import NewKey
from tests.litellm_database import hash_token

NOW_US = 1_795_608_000_000_000  # 2026-11-25T12:00
HERE = {"a": ("a",), "b": ("b",), "many": ("many@x", "many@y")}


def key(alias: str | None = "app", **columns: Any) -> dict[str, Any]:
    return {"token": hash_token(f"sk-{alias}"), "key_alias": alias, "models": [], "metadata": {}, **columns}


def taken(*keys: Mapping[str, Any], groups: Mapping[str, Sequence[str]] | None = None, **tables: Any) -> TakeOver:
    names = {
        "teams": TEAMS, "budgets": BUDGETS, "projects": PROJECTS, "users": USERS, "groups_": ACCESS_GROUPS,
        "organizations": ORGANIZATIONS, "memberships": MEMBERSHIPS,
    }  # fmt: skip
    rows = Rows({KEYS: keys, **{names[name]: found for name, found in tables.items()}})
    return take_over(rows, Models(lambda name: HERE.get(name, ()), groups or {}), now_us=NOW_US)


def only(made: TakeOver) -> TakenKey:
    assert made.left_out == []
    [found] = made.keys
    return found


def test_a_key_with_all_that_has_a_place() -> None:
    made = taken(
        key(
            team_id="t1", project_id="p1", max_budget=Decimal("10.5"), budget_duration="30d", spend=Decimal("0.25"),
            budget_reset_at="2026-12-01T00:00:00", rpm_limit=60, tpm_limit=1000, max_parallel_requests=3,
            expires="2026-12-24T18:00:00",
            metadata={"tags": ["nightly", "x"]}, models=["a"],
        ),
        teams=[{"team_id": "t1", "team_alias": "Red"}],
        projects=[{"project_id": "p1", "project_alias": "search"}],
    )  # fmt: skip
    found = only(made)
    assert found.digest.hex() == hash_token("sk-app")
    assert found.new == NewKey(
        "app", "app", "Red", "search", ("nightly", "x"), ("a",), expires_at_us=1_798_135_200_000_000
    )
    assert found.limits == {
        "requests_per_minute": 60,
        "tokens_per_minute": 1000,
        "max_parallel_requests": 3,
        "budget_usd": "10.5",
        "budget_window": "month",
    }
    assert (found.spent_usd, list(found.notes)) == (Decimal("0.25"), [])
    assert found.opening == TakenOpening("month:2026-11-01", Decimal("0.25"))
    assert made.notes == ["tokens_per_minute counts input tokens here; LiteLLM's tpm counts those of answers too"]


def test_a_limit_that_nothing_reaches_is_none() -> None:
    made = taken(key(rpm_limit=2**63 - 1, tpm_limit=1000))
    assert [one.limits for one in made.keys] == [{"tokens_per_minute": 1000}]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"token": "sk-in-clear"}, "no SHA-256"),
        ({"token": None}, "no SHA-256"),
        ({"blocked": True}, "it is blocked there"),
        ({"team_id": "blocked"}, "its team is blocked"),
        ({"project_id": "blocked"}, "its project is blocked"),
        ({"expires": "2026-11-25T12:00:00"}, "it has expired"),
        ({"expires": "2026-11-25T14:00:00+02:00"}, "it has expired"),
        ({"expires": "-infinity"}, "it has expired"),
        ({"expires": "0044-03-15T00:00:00 BC"}, "it has expired"),
        ({"allowed_routes": ["management_routes"]}, "for management_routes alone"),
        ({"rpm_limit": 0}, "requests_per_minute is 0"),
    ],
)
def test_who_could_call_nothing_there_gets_no_key_and_is_named(columns: dict[str, Any], why: str) -> None:
    made = taken(
        key(**columns),
        teams=[{"team_id": "blocked", "blocked": True}],
        projects=[{"project_id": "blocked", "blocked": True}],
    )
    assert made.keys == []
    [said] = made.left_out
    assert said.startswith("app: ")
    assert why in said
    assert "sk-in-clear" not in repr(made)


@pytest.mark.parametrize("never", ["infinity", "20000-01-01T00:00:00"])
def test_what_postgresql_has_for_never_is_no_end(never: str) -> None:
    """One such row ended the whole import."""
    found = only(taken(key(expires=never, max_budget=5, budget_duration="30d", budget_reset_at=never, spend=3)))
    assert (found.new.expires_at_us, found.opening) == (None, None)


@pytest.mark.parametrize(
    ("models", "team", "allowed"),
    [
        ([], None, None),
        (["all-proxy-models"], None, None),
        (["*"], ["a"], ("a",)),
        (["a", "b"], None, ("a", "b")),
        ([], ["b"], ("b",)),
        (["a", "b"], ["b", "c"], ("b",)),
        (["all-team-models"], ["b"], ("b",)),
        (["all-team-models"], [], None),
        (["all-team-models", "b"], ["all-proxy-models"], None),
        (["all-team-models"], ["all-team-models"], None),
        (["no-default-models"], None, ()),
        (["many"], None, ("many@x", "many@y")),
        (["beta"], None, ("a", "b")),
        (["later"], None, ("later",)),
        (["openai/*"], None, ()),
        (["a"], ["openai/*"], ()),
    ],
)
def test_which_models_it_may_call(models: list[str], team: list[str] | None, allowed: tuple[str, ...] | None) -> None:
    teams = [] if team is None else [{"team_id": "t", "models": team}]
    made = taken(key(models=models, team_id=None if team is None else "t"), teams=teams, groups={"beta": ["a", "b"]})
    assert only(made).new.allowed_models == allowed
    if allowed == ():
        assert "it may call no model at all" in "\n".join(only(made).notes)


def test_groups_of_the_database_and_lists_of_projects_and_users_count_too() -> None:
    groups = [{"access_group_id": "g", "access_model_names": ["b"]}]
    made = taken(
        key("one", models=["a"], access_group_ids=["g"]),
        key("two", models=["a", "b"], project_id="p"),
        key("three", user_id="u"),
        key("four", access_group_ids=["g"]),
        groups_=groups,
        projects=[{"project_id": "p", "models": ["b"]}],
        users=[{"user_id": "u", "models": ["a"]}],
    )
    assert [one.new.allowed_models for one in made.keys] == [("a", "b"), ("b",), ("a",), None]


def test_a_shared_budget_limits_what_the_key_itself_does_not() -> None:
    shared = {"budget_id": "b", "max_budget": 5, "rpm_limit": 7, "budget_duration": "1d", "model_max_budget": {"a": 1}}
    made = taken(key("one", budget_id="b"), key("two", budget_id="b", max_budget=9, rpm_limit=1), budgets=[shared])
    assert [one.limits for one in made.keys] == [
        {"requests_per_minute": 7, "budget_usd": "5", "budget_window": "day"},
        {"requests_per_minute": 1, "budget_usd": "9", "budget_window": "day"},
    ]
    assert any("model_max_budget of its budget" in note for note in made.keys[0].notes)


def test_of_a_budget_for_good_the_rest_is_left_and_what_was_before_a_reset_is_gone() -> None:
    made = taken(
        key("good", max_budget=100, spend=Decimal("40.5")),
        key("spent", max_budget=1, spend=2),
        key("weekly", max_budget=7, budget_duration="7d"),
        key("over", max_budget=7, budget_duration="1d", spend=3, budget_reset_at="2026-11-25T00:00:00"),
    )
    assert [(one.limits["budget_usd"], one.limits["budget_window"]) for one in made.keys] == [
        ("59.5", "total"), ("0", "total"), ("30", "month"), ("7", "day"),
    ]  # fmt: skip
    assert made.keys[0].notes == ["of its $100 for good, $40.5 was spent there"]
    assert made.keys[2].notes == ["its budget was for 7d; here it is for a month, with as much for the time"]
    assert made.keys[3].spent_usd == 0


@pytest.mark.parametrize(
    ("columns", "window", "usd"),
    [
        ({"budget_duration": "30d", "budget_reset_at": "2026-12-01T00:00:00"}, "month:2026-11-01", "2.5"),
        ({"budget_duration": "1mo", "budget_reset_at": "2026-12-01T00:00:00Z"}, "month:2026-11-01", "2.5"),
        ({"budget_duration": "1d", "budget_reset_at": "2026-11-26T02:00:00+02:00"}, "day:2026-11-25", "2.5"),
        ({"budget_duration": "daily", "budget_reset_at": "2026-11-26T00:00:00"}, "day:2026-11-25", "2.5"),
        # It is overdue: what was spent was spent in the period before.
        ({"budget_duration": "30d", "budget_reset_at": "2026-11-25T00:00:00"}, "month:2026-11-01", "0"),
    ],
)
def test_what_a_running_period_has_spent_counts_here(columns: dict[str, Any], window: str, usd: str) -> None:
    made = taken(key(max_budget=5, spend=Decimal("2.5"), **columns))
    assert only(made).opening == TakenOpening(window, Decimal(usd))
    assert only(made).notes == []
    assert only(without_openings(made)).opening is None


@pytest.mark.parametrize(
    "columns",
    [
        {"budget_duration": "30d", "budget_reset_at": "2026-12-12T08:00:00"},
        {"budget_duration": "30d", "budget_reset_at": "2026-11-26T00:00:00"},
        {"budget_duration": "1d", "budget_reset_at": "2026-11-26T05:00:00"},
        {"budget_duration": "30d"},
        {"budget_duration": "7d", "budget_reset_at": "2026-12-01T00:00:00"},
    ],
)
def test_of_a_period_that_is_none_here_nothing_counts_and_that_is_said(columns: dict[str, Any]) -> None:
    made = taken(key(max_budget=5, spend=Decimal("2.5"), **columns), key("idle", max_budget=5, spend=0, **columns))
    assert [one.opening for one in made.keys] == [None, None]
    said = "the $2.5 of its present period there does not count here: it is not a calendar day or month in UTC"
    assert (said in made.keys[0].notes, said in made.keys[1].notes) == (True, False)


def test_without_a_budget_or_with_one_for_good_nothing_is_left_to_count() -> None:
    made = taken(key("none", spend=3), key("good", max_budget=9, spend=3))
    assert [one.opening for one in made.keys] == [None, None]


def test_what_teams_and_projects_have_spent_this_month_counts_too() -> None:
    month = {"max_budget": 50, "budget_duration": "30d", "budget_reset_at": "2026-12-01T00:00:00"}
    made = taken(
        teams=[
            {"team_id": "1", "team_alias": "month", "spend": Decimal("7.25"), **month},
            {"team_id": "2", "team_alias": "day", "max_budget": 2, "budget_duration": "1d", "spend": 1},
        ],
        budgets=[{"budget_id": "b", **month}],
        projects=[{"project_id": "p", "project_alias": "search", "budget_id": "b", "spend": 3}],
    )
    assert [one.opening for one in made.budgets] == [
        TakenOpening("month:2026-11-01", Decimal("7.25")), None, TakenOpening("month:2026-11-01", Decimal(3)),
    ]  # fmt: skip
    assert made.budgets[1].notes[-1].startswith("the $1 of its present period there does not count here")


def test_budgets_of_teams_and_projects_are_for_a_month_and_stop() -> None:
    made = taken(
        teams=[
            {"team_id": "1", "team_alias": "month", "max_budget": 50, "budget_duration": "1mo", "rpm_limit": 9},
            {"team_id": "2", "team_alias": "day", "max_budget": 2, "budget_duration": "1d"},
            {"team_id": "3", "team_alias": "good", "max_budget": 9, "spend": 4, "soft_budget": 3},
            {"team_id": "4", "team_alias": "none", "tpd_limit": 5},
            {"team_id": "5", "team_alias": "endless", "max_budget": 1e9},
        ],
        budgets=[{"budget_id": "b", "max_budget": 3, "budget_duration": "30d", "rpm_limit": 5}],
        projects=[{"project_id": "p", "project_alias": "search", "budget_id": "b"}],
    )
    assert [(one.scope, one.name, one.month_usd) for one in made.budgets] == [
        ("team", "month", 50), ("team", "day", 60), ("team", "good", 5), ("team", "endless", MOST_USD),
        ("project", "search", 3),
    ]  # fmt: skip
    assert made.rates == {"month": {"requests_per_minute": 9}}
    assert any(note.startswith("soft_budget: ") for note in made.budgets[2].notes)
    said = "\n".join(made.notes)
    assert "team none: tpd_limit: " in said
    assert "project search: its requests_per_minute has no place" in said


def test_names_are_labels_and_two_of_one_name_are_told_apart() -> None:
    made = taken(
        key("what a (name)!", team_id="11111111-x"),
        key(None, key_name="sk-...AbCd", team_id="22222222-x"),
        key("", team_id="alone", metadata={"tags": [f"t{number}" for number in range(17)]}),
        teams=[{"team_id": "11111111-x", "team_alias": "Red"}, {"team_id": "22222222-x", "team_alias": "Red"}],
    )
    assert [(one.new.name, one.new.team) for one in made.keys[:2]] == [
        ("what a -name--", "Red 11111111"), ("sk-...AbCd", "Red 22222222"),
    ]  # fmt: skip
    assert made.keys[0].notes == ["it was called 'what a (name)!'"]
    assert made.keys[2].new.name == f"litellm {hash_token('sk-')[:8]}"
    assert (made.keys[2].new.team, len(made.keys[2].new.tags)) == ("alone", 16)
    assert "at most 16" in made.keys[2].notes[0]


def test_whatever_has_no_place_is_told() -> None:
    made = taken(
        key(
            user_id="ada", aliases={"x": "y"}, model_max_budget={"a": 1}, permissions={"p": 1}, tpd_limit=4,
            allowed_routes=["/v1/chat/completions"], metadata={"model_rpm_limit": {"a": 1}, "note": ""},
            future_column=1, config={}, created_at="2026-01-01T00:00:00",
        ),
        key("session", team_id="litellm-dashboard"),
        organizations=[{"organization_alias": "org", "budget_id": "b"}],
        users=[{"user_id": "ada", "max_budget": 5}],
        memberships=[{"team_id": "t", "budget_id": "b"}, {"team_id": "t", "budget_id": None}],
    )  # fmt: skip
    said = "\n".join(only(made).notes)
    for part in (
        "aliases: ",
        "model_max_budget: ",
        "permissions: ",
        "tpd_limit: ",
        "allowed_routes (/v1/chat",
        "metadata (model_rpm_limit)",
        "future_column: has no counterpart here",
    ):
        assert part in said
    assert "config" not in said
    assert "created_at" not in said
    for part in (
        "left out: 1 key of sessions",
        "organization org: budget_id",
        "user ada: max_budget",
        "budgets of 1 of its members",
        "Users of keys: ada",
    ):
        assert part in "\n".join(made.notes)


def test_answers_of_the_api_are_read_as_rows_are() -> None:
    columns = (
        '"key_alias": "app", "max_budget": 0.1, "team_id": "t", "rpm_limit": 5, "budget_id": "b", "user_role": "x"'
    )
    keys = f'{{"keys": [{{"token": "{hash_token("sk-app")}", {columns}}}], "total_count": 1}}'
    teams = '[{"team_id": "t", "team_alias": "Red", "keys": [], "members_with_roles": [{"role": "user"}]}]'
    rows = parse_answers({"k.json": keys, "t.json": teams})
    made = take_over(rows, Models(lambda name: (name,)), now_us=NOW_US)
    found = only(made)
    assert (found.new.team, found.limits) == (
        "Red", {"requests_per_minute": 5, "budget_usd": "0.1", "budget_window": "total"},
    )  # fmt: skip
    assert found.notes == ["its limits of the budget b are not known: the answers of the API do not have them"]
    assert any("members_with_roles" in note for note in made.notes)
    assert any("--database reads them" in note for note in made.notes)


def test_an_empty_page_of_answers_says_nothing() -> None:
    assert parse_answers({"k.json": '{"keys": [], "total_count": 0}', "t.json": "[]"}).of(KEYS) == []


SOON = '{"keys": [{"token": "t", "litellm_budget_table": {"budget_reset_at": "soon"}}]}'


@pytest.mark.parametrize("text", ["{", "{}", '{"keys": ["hash"]}', "3", '{"error": {}}', SOON])
def test_what_is_no_answer_is_refused_by_its_file(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"k\.json"):
        parse_answers({"k.json": text})
