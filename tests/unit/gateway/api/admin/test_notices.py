"""The state of budget notices over HTTP."""

from fastapi import FastAPI
from fastapi.testclient import TestClient

from gateway.api.admin.notices import NoticeService, build_notices_router
from gateway.notices.watch import LOOK_US, NoticeState
from tests.unit.gateway.api.fakes import AdminRig
from tests.unit.gateway.api.memory_stores import NOW_US

PATH = "/admin/v1/notices"


async def test_before_anything_was_told_there_is_nothing_to_say() -> None:
    rig = await AdminRig().start()
    assert rig.ask("viewer", "GET", PATH).json() == {
        "has_webhook": True,
        "at": [0.8, 1.0],
        "forecast": True,
        "looked_at_us": None,
        "sent_at_us": None,
        "failing_since_us": None,
        "failed_at_us": None,
        "next_try_at_us": None,
        "problem": None,
    }
    assert rig.ask("lead", "GET", PATH).status_code == 403


async def test_a_notice_that_waits_says_since_when_why_and_when_it_is_tried_again() -> None:
    rig = await AdminRig().start()
    looked = NOW_US - 5
    rig.told = NoticeState(NOW_US, looked, None, 1, NOW_US - 9, looked, "it answered 500")
    said = rig.ask("finance", "GET", PATH).json()
    assert (said["failing_since_us"], said["failed_at_us"], said["problem"]) == (NOW_US - 9, looked, "it answered 500")
    assert said["next_try_at_us"] == looked + LOOK_US
    rig.told = NoticeState(looked + 2 * LOOK_US, looked, None, 1, NOW_US - 9, looked, "it answered 500")
    assert rig.ask("finance", "GET", PATH).json()["next_try_at_us"] == looked + 2 * LOOK_US


async def test_without_a_webhook_nothing_waits() -> None:
    async def state() -> NoticeState:
        return NoticeState(NOW_US, NOW_US, None, 1, NOW_US - 9, NOW_US - 9, "it answered 500")

    router = build_notices_router(NoticeService(state, has_webhook=False, shares_per_mille=(1000,), forecast=True))
    app = FastAPI()
    app.include_router(router)
    said = TestClient(app).get("/notices").json()
    assert (said["failing_since_us"], said["next_try_at_us"], said["failed_at_us"]) == (None, None, NOW_US - 9)
