"""Counts a request's input tokens, by the provider where possible. Nothing is generated, charged or booked."""

import logging
from collections.abc import Mapping, Sequence

import msgspec

from backends.errors import BackendError, Untranslatable, UpstreamRejected
from backends.formats.responses import leans_on_kept
from backends.protocol import Call, Operation, Timeouts
from gateway.access.keys import KeyRecord
from gateway.errors import ContextTooLong, NoEligibleModel, UpstreamFailed
from gateway.ids import new_request_id
from gateway.kept_answers.summaries import with_summary
from gateway.pipeline import RESPONSES, Pipeline
from gateway.request.answer_parts import rejection
from gateway.request.run import Caller, Incoming
from gateway.request.view import RequestView
from gateway.request.view_of import view_of
from gateway.routing.rules import Operation as Routed
from gateway.routing.snapshot import Candidate

log = logging.getLogger(__name__)
HEADER = "x-breakeven-count"
"""`estimate` if no backend counted, else the name of the model whose backend did."""
NOT_OFFERED = frozenset({404, 405, 501})
BAD_GATEWAY = 502
ROUTED_AS: Mapping[Operation, Routed] = {
    "messages.count_tokens": "messages",
    "responses.input_tokens": "responses",
    "generate_content.count_tokens": "generate_content",
}


class TokenCounter:
    """Serves the counting operations, which `Pipeline.answer` does not: see gateway.api.token_path.Answers."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def answer(self, incoming: Incoming, caller: Caller) -> None:
        """Count with the model that would answer, or estimate. Raises RequestError."""
        key = self._pipeline.identify(incoming)
        whole = with_summary(await self._pipeline.read_whole(incoming, key))
        with self._pipeline.room_for(whole, incoming):
            view = view_of(whole)
            await self._pipeline.admission.admit(key.id, team=key.team, tokens=0)
            counted = await self._counted(whole, view, key)
        await caller.start(status=200, content_type="application/json", headers={HEADER: counted[0]})
        await caller.send(counted[1], is_last=True)

    async def _counted(self, incoming: Incoming, view: RequestView, key: KeyRecord) -> tuple[str, bytes]:
        """Who counted, and the response body."""
        is_response = view.operation in RESPONSES
        leans = is_response and leans_on_kept(incoming.body)
        refusal: UpstreamFailed | None = None
        for candidate in self._candidates(view, key, incoming.tags, leans=leans):
            try:
                counted = await self._ask(candidate, incoming, view, key)
            except Untranslatable as error:  # the next candidate would be asked
                refusal = rejection(error)
                continue
            except UpstreamRejected as error:
                raise rejection(error) from error
            except BackendError as error:
                if leans:
                    raise UpstreamFailed(
                        f"The tokens cannot be counted: {error.message}.", status=BAD_GATEWAY
                    ) from error
                log.warning("tokens are estimated, not counted: %s", error)
                counted = None
            if counted is not None:
                return candidate.name, counted
            refusal = None
            break
        if refusal is not None:
            raise refusal
        if leans:
            raise UpstreamFailed(
                "The tokens cannot be counted: this request continues from something that only its provider stores, "
                "so no estimate is possible. Send the whole conversation.",
                status=400,
            )
        kind = {"object": "response.input_tokens"} if is_response else {}
        name = "totalTokens" if ROUTED_AS[view.operation] == "generate_content" else "input_tokens"
        return "estimate", msgspec.json.encode({**kind, name: view.input_tokens})

    def _candidates(
        self, view: RequestView, key: KeyRecord, tags: tuple[str, ...], *, leans: bool
    ) -> Sequence[Candidate]:
        """The models that would answer. None if the prompt exceeds every context window: counts are asked for that as
        well."""
        routed = msgspec.structs.replace(view, operation=ROUTED_AS[view.operation])
        try:
            return self._pipeline.decide(routed, key, tags).order
        except (ContextTooLong, NoEligibleModel):
            if leans:
                raise
            return ()

    async def _ask(self, candidate: Candidate, incoming: Incoming, view: RequestView, key: KeyRecord) -> bytes | None:
        """The backend's own response, or None if it cannot count. Raises BackendError."""
        call = Call(
            operation=view.operation,
            upstream_model=candidate.upstream_model,
            body=incoming.body,
            is_stream=False,
            request_id=new_request_id(),
            timeouts=self._pipeline.timeouts.get(candidate.backend, Timeouts()),
            headers=incoming.headers,
            input_tokens=view.input_tokens,
            response_names=self._pipeline.names_of(key.team) if view.operation in RESPONSES else None,
            reasons="reasoning" in candidate.supports,
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
            raise
        return None if chunk.usage is None or chunk.usage.is_estimated else chunk.payload
