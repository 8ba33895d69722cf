"""`/v1/feedback`: who may rate what, and what is stored."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx import Response
from prometheus_client import CollectorRegistry

from gateway.access.keys import Role
from gateway.api.app import build_fastapi
from gateway.api.feedback import build_feedback_router
from gateway.api.public import build_public_router
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import Treasury
from gateway.limits.values import parse_limits
from gateway.stores import Feedback
from tests.unit.gateway.api.fakes import AdminRig, make_entry
from tests.unit.gateway.api.memory_stores import NOW_US
from tests.unit.gateway.learning.memory_feedback import MemoryFeedback

REQUEST = "0" * 32


class FeedbackRig(AdminRig):
    """One request of the app's key, of the team "red"."""

    async def start(self) -> "FeedbackRig":
        await super().start()
        self.feedback = MemoryFeedback()
        [app] = [one.record for one in self.keys.listed if one.record.role == "app"]
        self.entries.entries.append(make_entry(key_id=app.id))
        self.app = build_fastapi()
        self.app.include_router(build_feedback_router(self.pipeline, self.entries, self.feedback))
        self.client = TestClient(self.app)
        return self

    def give(self, role: Role, **body: Any) -> Response:
        return self.ask(role, "POST", "/v1/feedback", request_id=REQUEST, **body)


async def test_a_score_and_a_label_are_stored_with_who_gave_them() -> None:
    rig = await FeedbackRig().start()
    answer = rig.give("app", score=0.25, comment="too long")
    assert answer.status_code == 201
    assert answer.json() == {"request_id": REQUEST, "model": "small", "kind": "score", "score": 0.25}
    assert rig.give("app", label="bad").json()["score"] == 0.0
    assert rig.give("app", score=0).json() == {"request_id": REQUEST, "model": "small", "kind": "score", "score": 0.0}
    first, second, _ = rig.feedback.given
    [app] = [one.record.id for one in rig.keys.listed if one.record.role == "app"]
    assert first == Feedback(REQUEST, NOW_US, "score", 0.25, "caller", app, "too long")
    assert (second.kind, second.score) == ("label", 0.0)


async def test_a_strangers_request_looks_like_one_that_never_was() -> None:
    rig = await FeedbackRig().start()
    strange = rig.give("owner", score=1)
    assert strange.status_code == 404
    missing = rig.ask("app", "POST", "/v1/feedback", request_id="f" * 32, score=1)
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == strange.json()["error"]["code"]
    assert rig.feedback.given == []


@pytest.mark.parametrize(
    "body", [{}, {"score": 0.5, "label": "good"}, {"score": 1.5}, {"score": -0.1}, {"label": "meh"}, {"stars": 5}]
)
async def test_a_judgement_that_says_nothing_is_refused(body: dict[str, Any]) -> None:
    rig = await FeedbackRig().start()
    assert rig.give("app", **body).status_code == 400
    assert rig.feedback.given == []


async def test_nobody_judges_without_a_key() -> None:
    rig = await FeedbackRig().start()
    for body in ({"request_id": REQUEST, "score": 1}, {}):
        assert rig.client.post("/v1/feedback", json=body).status_code == 401


async def test_judging_and_asking_for_the_way_are_requests_under_the_keys_rate() -> None:
    rig = await FeedbackRig().start()
    rig.app.include_router(build_public_router(rig.pipeline, CollectorRegistry(), list))
    [app] = [one.record.id for one in rig.keys.listed if one.record.role == "app"]
    rig.pipeline.admission.limits = {app: parse_limits({"requests_per_minute": 2})}
    rig.pipeline.admission.treasury = Treasury(LocalCounters(clock=lambda: 1000.0))
    assert rig.give("app", score=1).status_code == 201
    chat = {"model": "small", "messages": [{"role": "user", "content": "Hello"}]}
    assert rig.ask("app", "POST", "/v1/route", **chat).status_code == 200
    for refused in (rig.give("app", score=0), rig.ask("app", "POST", "/v1/route", **chat)):
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "30"
    assert len(rig.feedback.given) == 1
