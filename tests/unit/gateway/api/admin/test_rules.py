"""Rules over HTTP: errors with their line, compare-and-set, replay, activation, roll-back."""

from gateway.rulebook.versions import text_version
from tests.unit.gateway.api.fakes import FIRST_RULES, OTHER_RULES, AdminRig

FIRST, OTHER = text_version(FIRST_RULES), text_version(OTHER_RULES)
RULES = "/admin/v1/rules"


async def rig_with_rules() -> AdminRig:
    rig = await AdminRig().start()
    answer = rig.ask("editor", "PUT", RULES, text=FIRST_RULES, expected_active=None, activate=True, reason="first")
    assert answer.status_code == 200, answer.text
    return rig


async def test_put_activate_and_list() -> None:
    rig = await rig_with_rules()
    listed = rig.ask("viewer", "GET", RULES).json()
    assert listed["active"] == listed["applied"] == FIRST
    assert listed["versions"][0]["author"] == "editor"
    assert listed["versions"][0]["text"] is None
    assert rig.ask("viewer", "GET", f"{RULES}/active").json()["text"] == FIRST_RULES


async def test_a_mistake_is_named_with_its_line_and_nothing_is_stored() -> None:
    rig = await rig_with_rules()
    wrong = FIRST_RULES.replace("choose:", "chose:")
    checked = rig.ask("viewer", "POST", f"{RULES}/validate", text=wrong).json()
    assert checked == {
        "is_valid": False,
        "problems": [{"message": "is not a known field; did you mean `choose`?", "line": 4, "field": "rules.0.chose"}],
    }
    refused = rig.ask("editor", "PUT", RULES, text=wrong, expected_active=FIRST)
    assert refused.status_code == 400
    assert "line 4" in refused.json()["error"]["message"]
    assert len(rig.ask("viewer", "GET", RULES).json()["versions"]) == 1


async def test_a_lost_compare_and_set_is_a_conflict() -> None:
    rig = await rig_with_rules()
    answer = rig.ask("editor", "PUT", RULES, text=OTHER_RULES, expected_active="somebody-else")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "rules_changed_meanwhile"


async def test_activate_diff_and_roll_back() -> None:
    rig = await rig_with_rules()
    rig.ask("editor", "PUT", RULES, text=OTHER_RULES, expected_active=FIRST)
    assert rig.ask("viewer", "GET", RULES).json()["active"] == FIRST
    diff = rig.ask("viewer", "GET", f"{RULES}/diff?old={FIRST}&new={OTHER}").json()["diff"]
    assert "-    choose: {from: [small, large], by: order}" in diff
    edited = rig.ask("viewer", "POST", f"{RULES}/diff", text=OTHER_RULES).json()["diff"]
    assert edited.splitlines()[3:] == diff.splitlines()[3:]
    activated = rig.ask("editor", "POST", f"{RULES}/{OTHER}/activate", expected_active=FIRST, reason="cheaper")
    assert activated.json()["previous"] == FIRST
    assert rig.applied[-1][1] == OTHER
    rig.ask("editor", "POST", f"{RULES}/rollback", expected_active=OTHER)
    assert rig.applied[-1][1] == FIRST


async def test_a_text_that_is_no_document_is_refused_at_its_line() -> None:
    rig = await AdminRig().start()
    refused = rig.ask("owner", "PUT", RULES, text="[]", expected_active=None).json()["error"]["message"]
    assert refused == "line 1: must be named fields, each as `name: value`"


async def test_replay_needs_a_valid_text_and_saves_nothing() -> None:
    rig = await rig_with_rules()
    assert rig.ask("viewer", "POST", f"{RULES}/replay", text="rules: []").status_code == 400
    answer = rig.ask("viewer", "POST", f"{RULES}/replay", text=OTHER_RULES, since="2026-11-01").json()
    assert answer["requests"] == 1
    assert rig.replayed[0].rules[0].choose.from_ == ["large"]
    assert len(rig.rules_store.stored) == 1


async def test_an_unknown_version_is_not_found() -> None:
    rig = await rig_with_rules()
    assert rig.ask("viewer", "GET", f"{RULES}/nothing").status_code == 404
    assert rig.ask("editor", "POST", f"{RULES}/nothing/activate", expected_active=FIRST).status_code == 404
