"""`/v1/feedback`: callers rate the answers they got. Knows the stores' protocols only."""

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field, StringConstraints, model_validator

from gateway.access.keys import KeyRecord
from gateway.api.callers_key import known_first
from gateway.api.late_entries import get_soon
from gateway.api.token_path import credential_of
from gateway.ledger.entry import Entry
from gateway.pipeline import Pipeline
from gateway.stores import EntryStore, Feedback, FeedbackKind, FeedbackStore
from gateway.strict import Strict

LABELS: dict[str, float] = {"good": 1.0, "bad": 0.0}


class FeedbackBody(Strict):
    """A rating: a `score` from 0 (useless) to 1 (perfect), or a `label`."""

    request_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    score: float | None = Field(default=None, ge=0, le=1)
    label: Literal["good", "bad"] | None = None
    comment: str | None = Field(default=None, max_length=4000)

    @model_validator(mode="after")
    def _one_of_both(self) -> "FeedbackBody":
        if (self.score is None) == (self.label is None):
            raise ValueError("give either score or label")
        return self


class Recorded(BaseModel):
    """The stored rating; `model` is the one that answered."""

    request_id: str
    model: str
    kind: FeedbackKind
    score: float


def build_feedback_router(pipeline: Pipeline, entries: EntryStore, feedback: FeedbackStore) -> APIRouter:
    """A key rates its own requests and those of its team; others are indistinguishable from unknown ids."""
    router = APIRouter(tags=["models"], dependencies=[known_first(pipeline)])

    @router.post("/v1/feedback", status_code=201)
    async def give(body: FeedbackBody, request: Request) -> Recorded:
        """Rate an answer. `request_id` is its header `x-breakeven-request-id`; a second rating replaces the first."""
        key = pipeline.keys.authenticate(credential_of(request.scope["headers"]), pipeline.now_us())
        await pipeline.admission.admit(key.id, team=key.team, tokens=0)
        entry = await get_soon(entries, body.request_id, lambda entry: _may_judge(key, entry))
        kind: FeedbackKind = "score" if body.label is None else "label"
        score = LABELS[body.label] if body.label is not None else body.score or 0.0
        one = Feedback(body.request_id, pipeline.now_us(), kind, score, "caller", key.id, body.comment)
        await feedback.add([one])
        return Recorded(request_id=body.request_id, model=entry.model, kind=kind, score=score)

    return router


def _may_judge(key: KeyRecord, entry: Entry) -> bool:
    intent = entry.intent
    return intent.key_id == key.id or (key.team is not None and intent.team == key.team)
