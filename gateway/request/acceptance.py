"""From a parsed request to an accepted one: decided, its money held, its intent written. Knows no storage, no HTTP.

A model at its limit (its own rate, or the key's quota for its tier) is excluded and the decision repeated, so that no
prompt, even one that fools the classifier, gets more of a tier than its key allows.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import msgspec

from backends.formats.json_splice import NotAnObject, splice
from backends.protocol import Operation
from gateway.access.keys import KeyRecord
from gateway.errors import Forbidden, InvalidRequest, ModelLimited, ModelNotFound, NoEligibleModel
from gateway.limits.admission import Admission
from gateway.request.bookkeeping import Bookkeeper
from gateway.request.content_view import limited_to
from gateway.request.cost_bounds import OUTPUT_BOUND_TOKENS
from gateway.request.end_user import end_user_of
from gateway.request.facts import new_intent
from gateway.request.hosted_tools import limit_calls
from gateway.request.metering import Meter
from gateway.request.run import Incoming, Run
from gateway.request.view import RequestView
from gateway.routing.decide import DIRECT, Choice, Escalation
from gateway.routing.snapshot import Candidate

LIMITS: Mapping[Operation, str] = {
    "chat.completions": "max_tokens",
    "responses": "max_output_tokens",
    "generate_content": "maxOutputTokens",
}
"""The field that limits the answer's length. Completions have none here: they are short by default."""
NOT_NAMED = (
    "Each end user of this key has a budget, so every request must name one: in safety_identifier or user, or in "
    "metadata.user_id. Requests without one need another key."
)


class Deciding(Protocol):
    """The part of the pipeline that this file uses. `records_end_users`: the books name them, of every key; those of a
    key that limits them are named in any case."""

    admission: Admission
    now_us: Callable[[], int]
    records_end_users: bool

    def decide(self, view: RequestView, key: KeyRecord, tags: tuple[str, ...], at_us: int) -> Choice: ...

    def known_models(self) -> frozenset[str]:
        """The names in the current snapshot."""
        ...

    def tags_to_book(self, key_id: str, tags: tuple[str, ...], at_us: int) -> tuple[str, ...]:
        """Of the tags that a key sent."""
        ...


class Acceptance(msgspec.Struct):
    deciding: Deciding
    books: Bookkeeper

    async def open(self, incoming: Incoming, view: RequestView, key: KeyRecord, started_at: float) -> Run:
        """Raises Forbidden, BudgetExhausted, RateLimitExceeded, Overloaded, LedgerUnavailable, and as `decide`."""
        if view.hosted_tools.asks_other_models and (
            key.allowed_models is not None or self.deciding.admission.has_quotas(key.id)
        ):
            raise Forbidden(
                f"The key {key.name!r} may use only some models, or some not often, and this request names others "
                "besides its `model` (in `fallbacks`, or for a tool, plugin or SVG: an advisor, an image generator, "
                "...). Send it without.",
                code="model_not_allowed",
            )
        end_user, deciding = self._end_user(incoming, key), self.deciding
        is_unlimited = deciding.admission.holds_nothing(key.id)
        limited: ModelLimited | None = None
        while True:
            at_us = deciding.now_us()  # one timestamp for the decision and the books, so that both use the same price
            try:
                choice = deciding.decide(view, key, incoming.tags, at_us)
            except (ModelNotFound, NoEligibleModel):
                if limited is not None:
                    raise limited from None
                raise
            if not is_unlimited:
                choice = self._with_free_fallbacks(choice, key)
            trace = incoming.headers.get("traceparent")
            tags = deciding.tags_to_book(key.id, incoming.tags, at_us) if incoming.tags else ()
            intent = new_intent(
                view,
                key,
                tags,
                choice,
                accepted_at_us=at_us,
                traceparent=trace,
                batch_id=incoming.batch_id,
                end_user=end_user,
            )
            body = incoming.body if is_unlimited else self._within_bound(incoming.body, view, key)
            run = Run(
                view,
                body,
                choice,
                intent,
                Meter(started_at),
                choice.order[0],
                headers=incoming.headers,
                content_type=incoming.content_type,
            )
            try:
                await self.books.open(run)
            except ModelLimited as error:
                if choice.decision.rule == DIRECT:
                    raise
                limited = error
                allowed = key.allowed_models if key.allowed_models is not None else deciding.known_models()
                key = replace(key, allowed_models=allowed - error.models)
            else:
                return run

    def _end_user(self, incoming: Incoming, key: KeyRecord) -> str | None:
        """Raises InvalidRequest, also if it must be named and is not."""
        is_limited = self.deciding.admission.limits_end_users(key.id)
        end_user = end_user_of(incoming) if self.deciding.records_end_users or is_limited else None
        if is_limited and end_user is None:
            raise InvalidRequest(NOT_NAMED, param="user")
        return end_user

    def _within_bound(self, body: bytes, view: RequestView, key: KeyRecord) -> bytes:
        """Under a budget, adds the limits that the caller left out, so that neither a whole answer's length nor the
        provider's tool calls exceed what is held for them."""
        has_length = view.is_stream or view.max_output_tokens is not None
        length = None if has_length else LIMITS.get(view.operation)
        if length is None and view.hosted_tools.is_limited:
            return body
        if not self.deciding.admission.has_budget(key.id, team=key.team, project=key.project):
            return body
        try:
            limited = limit_calls(body, view.hosted_tools)
            if length is not None and view.operation == "generate_content":
                return limited_to(limited, OUTPUT_BOUND_TOKENS)
            return limited if length is None else splice(limited, {length: b"%d" % OUTPUT_BOUND_TOKENS})
        except NotAnObject as error:
            raise InvalidRequest(f"The body is not valid: {error}.", code="invalid_json") from error

    def _with_free_fallbacks(self, choice: Choice, key: KeyRecord) -> Choice:
        """Drops rate-limited and quota-limited models from the fallbacks: they serve only requests counted for them."""
        if choice.escalation is not None:
            choice = self._with_free_escalation(choice, choice.escalation, key)
        if not self.deciding.admission.counts_models(key.id):
            return choice
        first, *spare = choice.order
        return msgspec.structs.replace(choice, order=(first, *(one for one in spare if not self._is_counted(key, one))))

    def _with_free_escalation(self, choice: Choice, escalation: Escalation, key: KeyRecord) -> Choice:
        """A request is counted for one model only: for the first one to escalate to, unless the model that is asked
        first is counted already. All other counted models are dropped."""
        first, *spare = escalation.order
        is_asked_counted = self._is_counted(key, choice.order[0])
        kept = [] if is_asked_counted and self._is_counted(key, first) else [first]
        kept += [one for one in spare if not self._is_counted(key, one)]
        return msgspec.structs.replace(
            choice, escalation=msgspec.structs.replace(escalation, order=tuple(kept)) if kept else None
        )

    def _is_counted(self, key: KeyRecord, candidate: Candidate) -> bool:
        return self.deciding.admission.is_counted(key.id, candidate.name)
