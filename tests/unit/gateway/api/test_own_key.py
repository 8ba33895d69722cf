"""`/v1/key`: a key reads its own limits and spending, and nobody else's."""

from collections.abc import Collection, Mapping, Sequence

import pytest
from fastapi.testclient import TestClient

from gateway.api.app import build_fastapi
from gateway.api.own_key import build_own_key_router
from gateway.limits.counters import Account, budget_account
from gateway.limits.openings import Opening
from gateway.limits.values import Limits, TierQuota, window_id
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.fakes import AdminRig
from tests.unit.gateway.api.memory_stores import NOW_US, OneSum

USD = 10**12
MONTH = window_id("month", NOW_US)


class Books(OneSum):
    """Of `key-0`: $3, and a request that a process left behind, which counts as its maximum. Others have nothing."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        if query.filters != {"key": "key-0"}:
            return []
        return [
            Sums({"status": "completed"}, requests=1, input_pico_usd=3 * USD),
            Sums({"status": "orphaned"}, requests=1, unpriced_requests=1, upper_pico_usd=USD),
        ]


async def imported(windows: Collection[str]) -> Sequence[Opening]:
    return [Opening("key", "key-0", MONTH, USD // 2)] if MONTH in windows else []


ADA = budget_account("key-0:ada", window_id("day", NOW_US), scope="end_user")


async def of_end_users(accounts: Collection[Account]) -> Mapping[Account, int]:
    return {account: 2 * USD if account == ADA else 0 for account in accounts}


@pytest.fixture
async def rig() -> AdminRig:
    found = await AdminRig().start()
    app = build_fastapi()
    app.include_router(build_own_key_router(found.pipeline, Books(), imported, of_end_users))
    found.client = TestClient(app)
    return found


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(budget_usd="8", requests_per_minute=5), {"spent_usd": "4.500000000000", "left_usd": "3.500000000000"}),
        (Limits(budget_usd="2.5"), {"budget_usd": "2.500000000000", "left_usd": "0.000000000000"}),
        (Limits(budget_usd="8", budget_window="total"), {"spent_usd": "4.000000000000", "window_ends": None}),
        (Limits(), {"spent_usd": "4.500000000000", "window": "month", "budget_usd": None, "left_usd": None}),
    ],
)
async def test_what_is_left_is_what_the_books_leave(rig: AdminRig, limits: Limits, expected: dict[str, object]) -> None:
    """What was spent at LiteLLM in the running month counts, as for admission."""
    rig.pipeline.admission.limits = {"key-0": limits}
    found = rig.ask("app", "GET", "/v1/key").json()
    assert found["id"] == "key-0"
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("name", "left"), [("ada", "1.000000000000"), ("grace", "3.000000000000")])
async def test_an_app_reads_what_is_left_to_one_of_its_end_users(rig: AdminRig, name: str, left: str) -> None:
    rig.pipeline.admission.limits = {"key-0": Limits(end_user_budget_usd="3", end_user_budget_window="day")}
    found = rig.ask("app", "GET", f"/v1/key?end_user={name}").json()
    assert (found["end_user"]["window"], found["end_user"]["left_usd"]) == ("day", left)
    assert found["limits"] == {"end_user_budget_usd": "3", "end_user_budget_window": "day"}
    refused = rig.ask("app", "GET", "/v1/key?end_user=%00")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "end_user")
    rig.pipeline.admission.limits = {}
    assert rig.ask("app", "GET", f"/v1/key?end_user={name}").json()["end_user"] is None


async def test_every_role_reads_its_own(rig: AdminRig) -> None:
    quota = {"best": TierQuota(3)}
    rig.pipeline.admission.limits = {"key-1": Limits(max_parallel_requests=2, budget_usd="8", tier_quotas=quota)}
    found = rig.ask("lead", "GET", "/v1/key").json()
    assert (found["id"], found["role"], found["team"], found["spent_usd"]) == ("key-1", "lead", "red", "0.000000000000")
    assert found["limits"] == {"max_parallel_requests": 2, "tier_quotas": {"best": {"requests": 3, "window": "day"}}}
    assert rig.client.get("/v1/key").status_code == 401
