"""Keys over HTTP: the secret is shown once, works at once, and stops at once."""

from typing import Any

import pytest

from gateway.stores import NewKey
from tests.unit.gateway.api.fakes import AdminRig
from tests.unit.gateway.api.memory_stores import NOW_US

KEYS = "/admin/v1/keys"


async def test_a_created_key_works_at_once_and_its_secret_is_never_listed() -> None:
    rig = await AdminRig().start()
    created = rig.ask("owner", "POST", KEYS, name="report bot", role="viewer", team="red", tags=["nightly"])
    assert created.status_code == 201
    secret = created.json()["key"]
    me = rig.client.get("/admin/v1/me", headers={"authorization": f"Bearer {secret}"}).json()
    assert (me["role"], me["team"]) == ("viewer", "red")
    assert "reports.read" in me["permissions"]
    assert secret not in rig.ask("owner", "GET", KEYS).text


async def test_some_keys_are_listed_by_their_ids() -> None:
    rig = await AdminRig().start()
    made = [rig.ask("owner", "POST", KEYS, name=f"bot {n}").json()["id"] for n in range(3)]
    listed = rig.ask("owner", "GET", f"{KEYS}?id={made[0]}&id={made[2]}&id=nothing").json()["keys"]
    assert [one["id"] for one in listed] == [made[2], made[0]]
    assert rig.ask("owner", "GET", f"{KEYS}?id=nothing").json() == {"keys": [], "matching": 0}


async def test_keys_come_so_many_at_a_time_from_a_place_on() -> None:
    rig = await AdminRig().start()
    made = [rig.ask("owner", "POST", KEYS, name=f"service {n}", team="red").json()["id"] for n in range(7)]
    pages = [rig.ask("owner", "GET", f"{KEYS}?find=service&limit=3&offset={at}").json() for at in (0, 3, 6, 9)]
    assert [one["id"] for page in pages for one in page["keys"]] == made[::-1]
    assert {page["matching"] for page in pages} == {7}
    changed = rig.ask("owner", "PATCH", f"{KEYS}/{made[0]}?id={made[0]}", team="blue").json()
    assert [one["team"] for one in changed["keys"]] == ["blue"]
    assert rig.ask("owner", "POST", f"{KEYS}/{made[0]}/revoke?limit=0").json()["keys"] == []
    assert rig.ask("owner", "GET", f"{KEYS}?limit=-1").status_code == 400


async def test_a_key_says_when_it_last_called_a_model() -> None:
    rig = await AdminRig().start()
    used, unused = (rig.ask("owner", "POST", KEYS, name=f"bot {n}").json() for n in range(2))
    assert used["last_request_on"] is None
    rig.keys.used_on = {used["id"]: 20_781}
    listed = rig.ask("owner", "GET", f"{KEYS}?find=bot").json()["keys"]
    assert {one["id"]: one["last_request_on"] for one in listed} == {used["id"]: "2026-11-24", unused["id"]: None}
    quick = rig.ask("owner", "GET", f"{KEYS}?find=bot&last_requests=false").json()["keys"]
    assert quick == [{**one, "last_request_on": None} for one in listed]


async def test_a_key_says_that_it_came_from_litellm() -> None:
    rig = await AdminRig().start()
    came, ours = (rig.ask("owner", "POST", KEYS, name=f"bot {n}").json() for n in range(2))
    assert ours["taken_over_from"] is None
    rig.keys.from_litellm = {came["id"]}
    listed = rig.ask("owner", "GET", f"{KEYS}?find=bot").json()["keys"]
    assert {one["id"]: one["taken_over_from"] for one in listed} == {came["id"]: "LiteLLM", ours["id"]: None}


async def test_a_revoked_key_stops_at_once() -> None:
    rig = await AdminRig().start()
    viewer = rig.ask("viewer", "GET", "/admin/v1/me").json()["id"]
    assert rig.ask("owner", "POST", f"{KEYS}/{viewer}/revoke").status_code == 200
    assert rig.ask("viewer", "GET", "/admin/v1/me").status_code == 401


async def test_nobody_locks_themselves_out() -> None:
    rig = await AdminRig().start()
    own = rig.ask("owner", "GET", "/admin/v1/me").json()["id"]
    assert rig.ask("owner", "POST", f"{KEYS}/{own}/revoke").status_code == 409


async def test_unknown_fields_and_odd_names_are_refused() -> None:
    rig = await AdminRig().start()
    assert rig.ask("owner", "POST", KEYS, name="x", rol="owner").status_code == 400
    assert rig.ask("owner", "POST", KEYS, name="<b>x</b>").status_code == 400
    assert rig.ask("owner", "POST", f"{KEYS}/nothing/revoke").status_code == 404


async def test_limits_are_given_at_creation_changed_and_listed() -> None:
    rig = await AdminRig().start()
    created = rig.ask("owner", "POST", KEYS, name="bot", limits={"budget_usd": "25", "requests_per_minute": 60})
    assert created.json()["limits"] == {"budget_usd": "25", "requests_per_minute": 60}
    path = f"{KEYS}/{created.json()['id']}/limits"
    changed = rig.ask("owner", "PUT", path, limits={"budget_usd": "30.50", "tokens_per_minute": None})
    assert changed.status_code == 200
    newest = rig.ask("finance", "GET", KEYS).json()["keys"][0]
    assert newest["limits"] == {"budget_usd": "30.50"}
    assert rig.ask("owner", "PUT", f"{KEYS}/nothing/limits", limits={}).status_code == 404


async def test_a_limit_of_null_is_none_and_documented_so() -> None:
    rig = await AdminRig().start()
    documented = rig.client.get("/openapi.json").json()["components"]["schemas"]["NewLimits"]["properties"]["limits"]
    given = dict.fromkeys(documented["properties"])
    assert "tier_quotas" in given
    created = rig.ask("owner", "POST", KEYS, name="bot", limits={"budget_usd": "25"}).json()["id"]
    changed = rig.ask("owner", "PUT", f"{KEYS}/{created}/limits", limits=given)
    assert next(key for key in changed.json()["keys"] if key["id"] == created)["limits"] == {}
    assert all({"type": "null"} in one["anyOf"] for one in documented["properties"].values())


@pytest.mark.parametrize(
    "limits",
    [
        {"budget": "5"},
        {"budget_usd": "much"},
        {"budget_usd": "-1"},
        {"budget_usd": "1e30"},
        {"budget_usd": "NaN"},
        {"requests_per_minute": 0},
        {"requests_per_minute": 10**400},
        {"tier_quotas": {"premium": {"requests": 10**400}}},
        {"max_parallel_requests": 0},
        {"max_parallel_requests": "many"},
        {"budget_usd": 5},
    ],
)
async def test_limits_that_mean_nothing_are_refused_in_words(limits: dict[str, Any]) -> None:
    rig = await AdminRig().start()
    answer = rig.ask("owner", "POST", KEYS, name="bot", limits=limits)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "limits"


async def test_a_key_keeps_the_limits_that_an_earlier_version_took() -> None:
    rig = await AdminRig().start()
    await rig.keys.create(NewKey("bot"), author="x", limits={"budget_usd": "1e30"})
    listed = rig.ask("owner", "GET", f"{KEYS}?find=bot").json()["keys"]
    assert [one["limits"] for one in listed] == [{"budget_usd": "1e30"}]


async def test_a_quota_of_a_tier_that_there_is_not_is_refused_at_creation_and_later() -> None:
    rig = await AdminRig().start()
    limits = {"tier_quotas": {"premium": {"requests": 3}}}
    key_id = rig.ask("owner", "POST", KEYS, name="bot").json()["id"]
    for method, path, body in (("POST", KEYS, {"name": "bot"}), ("PUT", f"{KEYS}/{key_id}/limits", {})):
        answer = rig.ask("owner", method, path, **body, limits=limits)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == "There is no tier 'premium' in breakeven.yaml; there are: none."


async def test_a_change_holds_at_once_and_touches_only_what_it_names() -> None:
    rig = await AdminRig().start()
    made = {"name": "bot", "team": "red", "project": "chat", "tags": ["nightly"], "limits": {"budget_usd": "25"}}
    created = rig.ask("owner", "POST", KEYS, **made).json()
    path = f"{KEYS}/{created['id']}"
    assert rig.ask("owner", "PATCH", path, team="blue", project=None, tags=["daily", "eu"]).status_code == 200
    me = rig.client.get("/admin/v1/me", headers={"authorization": f"Bearer {created['key']}"})
    assert me.status_code == 403  # it still calls models only
    newest = rig.ask("finance", "GET", KEYS).json()["keys"][0]
    assert newest == {**_public(created), "team": "blue", "project": None, "tags": ["daily", "eu"]}
    assert rig.ask("owner", "PATCH", path, tags=None, limits=None, allowed_models=[]).status_code == 200
    newest = rig.ask("finance", "GET", KEYS).json()["keys"][0]
    assert (newest["tags"], newest["limits"], newest["allowed_models"]) == ([], {}, [])


def _public(created: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in created.items() if name != "key"}


async def test_an_end_is_given_moved_and_taken_away() -> None:
    rig = await AdminRig().start()
    path = f"{KEYS}/{rig.ask('owner', 'POST', KEYS, name='bot', expires_at_us=NOW_US + 5).json()['id']}"
    for end in (NOW_US + 10**9, None):
        listed = rig.ask("owner", "PATCH", path, expires_at_us=end).json()["keys"]
        assert listed[0]["expires_at_us"] == end


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"expires_at_us": NOW_US}, "expires_at_us"),
        ({"expires_at_us": NOW_US // 10**6}, "expires_at_us"),
        ({"name": None}, "name"),
        ({"name": ""}, "name"),
        ({"role": "owner"}, "role"),
        ({"tags": ["<b>"]}, "tags.0"),
        ({"limits": {"budget_usd": "much"}}, "limits"),
        ({"limits": {"tier_quotas": {"premium": {"requests": 3}}}}, "limits"),
    ],
)
async def test_a_change_that_means_nothing_is_refused_and_changes_nothing(change: dict[str, Any], param: str) -> None:
    rig = await AdminRig().start()
    rig.ask("owner", "POST", KEYS, name="bot", tags=["a"])
    before = rig.ask("owner", "GET", KEYS).json()
    answer = rig.ask("owner", "PATCH", f"{KEYS}/{before['keys'][0]['id']}", team="blue", **change)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert rig.ask("owner", "GET", KEYS).json() == before


async def test_a_name_with_other_characters_is_told_which_it_may_have() -> None:
    rig = await AdminRig().start()
    said = rig.ask("owner", "POST", KEYS, name="<b>").json()["error"]["message"]
    assert said == "name: may have only letters, digits and . _ : / @ -, with blanks between them."


async def test_a_key_that_would_be_born_expired_is_refused_and_an_unknown_one_is_said() -> None:
    rig = await AdminRig().start()
    for end in (1_790_000_000, 10**18, 10**19):  # behind the year 9999, and beyond what a database counts to
        assert rig.ask("owner", "POST", KEYS, name="bot", expires_at_us=end).status_code == 400
    assert rig.ask("owner", "PATCH", f"{KEYS}/nothing", team="blue").status_code == 404
    assert rig.ask("editor", "PATCH", f"{KEYS}/nothing", team="blue").status_code == 403


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def test_a_rotated_key_works_by_both_secrets_until_the_overlap_is_ended() -> None:
    rig = await AdminRig().start()
    created = rig.ask("owner", "POST", KEYS, name="bot", role="viewer", limits={"budget_usd": "25"}).json()
    path = f"{KEYS}/{created['id']}"
    answer = rig.ask("owner", "POST", f"{path}/rotate", overlap_seconds=3600)
    assert answer.status_code == 200
    rotated = answer.json()
    working = [{"replaced_at_us": NOW_US, "ends_at_us": NOW_US + 3600 * 10**6, "last_used_at_us": None}]
    assert rotated == {**created, "key": rotated["key"], "rotated_at_us": NOW_US, "old_secrets": working}
    assert rotated["key"] != created["key"]
    seen = [rig.client.get("/admin/v1/me", headers=bearer(one["key"])).json() for one in (created, rotated)]
    assert [one["id"] for one in seen] == [created["id"]] * 2
    listed = rig.ask("finance", "GET", KEYS)
    assert listed.json()["keys"][0]["old_secrets"] == working
    assert rotated["key"] not in listed.text

    ended = rig.ask("owner", "POST", f"{path}/end-overlap").json()["keys"][0]
    assert (ended["rotated_at_us"], ended["old_secrets"]) == (NOW_US, [])
    refused = rig.client.get("/admin/v1/me", headers=bearer(created["key"]))
    assert refused.status_code == 401
    assert "'bot' was replaced on 2026-09-21" in refused.json()["error"]["message"]
    assert "use the new one" in refused.json()["error"]["message"]
    assert rig.client.get("/admin/v1/me", headers=bearer(rotated["key"])).status_code == 200


async def test_an_owner_may_replace_the_secret_that_asks_for_it_at_once() -> None:
    rig = await AdminRig().start()
    old = rig.keys.secrets["key-5"]
    own = rig.ask("owner", "GET", "/admin/v1/me").json()["id"]
    made = rig.ask("owner", "POST", f"{KEYS}/{own}/rotate", overlap_seconds=0).json()
    assert rig.client.get("/admin/v1/me", headers=bearer(old)).status_code == 401
    assert rig.client.get("/admin/v1/me", headers=bearer(made["key"])).json()["id"] == own


async def test_without_a_body_the_overlap_is_a_day() -> None:
    rig = await AdminRig().start()
    made = rig.ask("owner", "POST", f"{KEYS}/key-0/rotate").json()
    assert made["old_secrets"][0]["ends_at_us"] == NOW_US + 86_400 * 10**6


async def test_what_cannot_be_rotated_is_said_and_a_revoked_key_stops_by_every_secret() -> None:
    rig = await AdminRig().start()
    created = rig.ask("owner", "POST", KEYS, name="bot", role="viewer").json()
    path = f"{KEYS}/{created['id']}"
    for seconds in (-1, 30 * 86_400 + 1, 0.5):
        assert rig.ask("owner", "POST", f"{path}/rotate", overlap_seconds=seconds).status_code == 400
    assert rig.ask("owner", "POST", f"{KEYS}/nothing/rotate").status_code == 404
    assert rig.ask("owner", "POST", f"{KEYS}/nothing/end-overlap").status_code == 404
    assert rig.ask("editor", "POST", f"{path}/rotate").status_code == 403
    rotated = rig.ask("owner", "POST", f"{path}/rotate").json()
    rig.ask("owner", "POST", f"{path}/revoke")
    for secret in (created["key"], rotated["key"]):
        refused = rig.client.get("/admin/v1/me", headers=bearer(secret))
        assert (refused.status_code, "was revoked" in refused.text) == (401, True)
    assert rig.ask("owner", "POST", f"{path}/rotate").status_code == 409
