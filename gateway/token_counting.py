"""Counts the input tokens of a message, by the provider where it can: nothing is answered, bought or booked."""

import logging

import msgspec

from backends.errors import BackendError, UpstreamRejected
from backends.protocol import Call, Timeouts
from gateway.access.keys import KeyRecord
from gateway.errors import ContextTooLong, NoEligibleModel
from gateway.ids import new_request_id
from gateway.pipeline import Pipeline
from gateway.request.answer_parts import rejection
from gateway.request.run import Caller, Incoming
from gateway.request.view import RequestView
from gateway.routing.snapshot import Candidate

log = logging.getLogger(__name__)
HEADER = "x-breakeven-count"
"""`estimate` where nobody counted, else the name of the model whose backend did."""
NOT_OFFERED = frozenset({404, 405, 501})


class TokenCounter:
    """Serves what `Pipeline.answer` does not: see gateway.api.token_path.Answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Count as the model that would answer counts; else estimate. Raises RequestError."""
        key, view = self._pipeline.identify(incoming)
        await self._pipeline.admission.admit(key.id, team=key.team, tokens=0)
        candidate = self._candidate(view, key, incoming.tags)
        counted = await self._ask(candidate, incoming, view) if candidate is not None else None
        headers = {HEADER: "estimate" if counted is None or candidate is None else candidate.name}
        await caller.start(status=200, content_type="application/json", headers=headers)
        estimate = msgspec.json.encode({"input_tokens": view.input_tokens})
        await caller.send(counted or estimate, is_last=True)

    def _candidate(self, view: RequestView, key: KeyRecord, tags: tuple[str, ...]) -> Candidate | None:
        """Who would answer; nobody's window being wide enough is what a count may be asked for."""
        try:
            return self._pipeline.decide(msgspec.structs.replace(view, operation="messages"), key, tags).order[0]
        except (ContextTooLong, NoEligibleModel):
            return None

    async def _ask(self, candidate: Candidate, incoming: Incoming, view: RequestView) -> bytes | None:
        """The backend's own words, or None where it cannot say."""
        call = Call(
            operation=view.operation,
            upstream_model=candidate.upstream_model,
            body=incoming.body,
            is_stream=False,
            request_id=new_request_id(),
            timeouts=self._pipeline.timeouts.get(candidate.backend, Timeouts()),
            headers=incoming.headers,
            input_tokens=view.input_tokens,
        )
        try:
            reply = await self._pipeline.backends[candidate.backend].open(call)
            try:
                [chunk] = [chunk async for chunk in reply]
            finally:
                await reply.aclose()
        except UpstreamRejected as error:
            if error.status in NOT_OFFERED:
                return None
            raise rejection(error) from error
        except BackendError as error:
            log.warning("tokens are estimated, not counted: %s", error)
            return None
        return None if chunk.usage is None or chunk.usage.is_estimated else chunk.payload
