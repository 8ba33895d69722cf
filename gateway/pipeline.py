"""A request's path, top to bottom. Knows protocols only: no storage, no HTTP framework, no concrete backend.

    authenticate → parse → admit → classify → decide → reserve → intend → dispatch, stream and meter → price → settle
    → last byte

Invariants:

1. The first chunk commits the model. Before it, any failure may fall back (`dispatch.py`). After it, a failure becomes
   an error event in the stream and never a clean `[DONE]` (`delivery.py`).
2. Every accepted request ends in exactly one settled ledger entry: kill -9, client disconnect, upstream reset and
   database outage included (the journal's recovery settles what this process could not).
3. A decision can be replayed from its entry: the facts, the versions and the draw are stored with it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from backends.protocol import MEDIA, RESPONSES, Backend, Timeouts
from backends.response_names import ResponseNames
from classifier.protocol import Classification, Classifier
from gateway.access.keys import KeyRecord, KeyRing, require_model_access
from gateway.errors import NoEligibleModel
from gateway.kept_answers.belonging import BelongingCaller, named_conversation
from gateway.kept_answers.body_keeper import BodyKeeper
from gateway.kept_answers.keeping_caller import keeping
from gateway.kept_answers.kept_conversations import Belonging, KeptConversations
from gateway.kept_answers.kept_responses import KeptResponses, Resumed
from gateway.kept_answers.memory_responses import MemoryResponses
from gateway.kept_answers.response_cache import Recording, ResponseCache
from gateway.kept_answers.summaries import with_summary
from gateway.learning.implied_feedback import ImpliedFeedback
from gateway.learning.shadow import ShadowCalls
from gateway.ledger.entry import Ledger, Status, tenant_of
from gateway.limits.admission import Admission
from gateway.request.acceptance import Acceptance
from gateway.request.bookkeeping import Bookkeeper
from gateway.request.cascade import cascade
from gateway.request.delivery import Delivery
from gateway.request.dispatch import Dispatcher
from gateway.request.facts import expected_tokens, gather_facts, request_facts
from gateway.request.run import Answer, Caller, Incoming, Observer, Run
from gateway.request.tag_bound import TagBound
from gateway.request.view import RequestView
from gateway.request.view_of import view_of
from gateway.routing.decide import Choice, decide, deciding_tags
from gateway.routing.fallback import RetryPolicy
from gateway.routing.prompt_reuse import tokens_to_repeat
from gateway.routing.refusals import LOADING, PAUSED
from gateway.routing.rules import SPECIALTIES
from gateway.routing.snapshot import Snapshot
from gateway.rulebook.state import ExplorationSpend, RuleState
from gateway.upstreams.load import Upstreams
from gateway.upstreams.warm_prefixes import SENT, MemoryWarmPrefixes, PromptCache, WarmPrefixes, note_answer

log = logging.getLogger(__name__)
RETRY_SECONDS = 5.0
"""Retry-After while the engine is still loading."""


@dataclass(slots=True)
class Pipeline:
    """All collaborators are passed in; `snapshot` and `classifier` are replaced as a whole when rules or models
    change."""

    keys: KeyRing
    backends: Mapping[str, Backend]
    upstreams: Upstreams
    ledger: Ledger
    observer: Observer
    snapshot: Snapshot
    classifier: Classifier | None
    timeouts: Mapping[str, Timeouts] = field(default_factory=dict[str, Timeouts])
    admission: Admission = field(default_factory=Admission)
    warm: WarmPrefixes = field(default_factory=MemoryWarmPrefixes)
    prompt_caches: Mapping[str, PromptCache] = field(default_factory=dict[str, PromptCache])
    marks_prompts: bool = False  # for any of these caches
    drains: frozenset[str] = frozenset()  # backends that bill the whole answer even if nobody reads it
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    responses: ResponseCache = field(default_factory=lambda: ResponseCache(MemoryResponses()))
    kept_responses: KeptResponses | None = None
    kept_conversations: KeptConversations | None = None
    bodies: BodyKeeper | None = None
    shadows: ShadowCalls | None = None
    rule_state: RuleState = field(default_factory=RuleState)
    exploration: ExplorationSpend | None = None
    implied: ImpliedFeedback | None = None
    tags: TagBound = field(default_factory=TagBound)
    records_end_users: bool = False  # as their app names them
    loading_seconds: float = 30.0  # how long a request waits for an engine that is loading
    monotonic: Callable[[], float] = time.monotonic
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000
    draw: Callable[[], float] = random.random
    snapshot_at: Callable[[int], Snapshot] | None = None  # as of a moment: prices change by date

    async def answer(self, incoming: Incoming, caller: Caller, known_key: KeyRecord | None = None) -> None:
        """Serve one request to its end. Raises RequestError or LedgerUnavailable only before anything was sent.

        `known_key` is passed when the key was authenticated earlier, as for a batch's requests.
        """
        started_at = self.monotonic()
        key = self.identify(incoming) if known_key is None else known_key
        if incoming.operation not in RESPONSES:
            await self._answer(incoming, caller, key, started_at, asked=incoming, resumed=None)
        elif incoming.operation == "responses" and (named := self._own_conversation(incoming)) is not None:
            conversations, conversation_id = named
            async with conversations.turn(tenant_of(key.team, key.id), conversation_id) as belonging:
                await self._answer_whole(incoming, caller, key, started_at, belonging)
        else:
            await self._answer_whole(incoming, caller, key, started_at)

    async def _answer_whole(
        self,
        incoming: Incoming,
        caller: Caller,
        key: KeyRecord,
        started_at: float,
        belonging: Belonging | None = None,
    ) -> None:
        """Resolves references to stored items, as a turn of the conversation the request belongs to, if any."""
        whole, resumed = await self._resumed(incoming, key, belonging)
        whole = with_summary(whole)
        with self.room_for(whole, incoming):
            await self._answer(whole, caller, key, started_at, asked=incoming, resumed=resumed)

    async def _answer(
        self,
        incoming: Incoming,
        caller: Caller,
        key: KeyRecord,
        started_at: float,
        *,
        asked: Incoming,
        resumed: Resumed | None,
    ) -> None:
        """`asked` is the request as received, `incoming` the same with its references resolved."""
        view = view_of(incoming)
        rate_headers = await self.admission.admit(key.id, team=key.team, tokens=view.input_tokens)
        books = Bookkeeper(self.ledger, self.admission, self.observer, self.monotonic, self.upstreams.speeds)
        acceptance = Acceptance(self, books)
        try:
            run = await acceptance.open(incoming, view, key, started_at)
        except NoEligibleModel as refused:
            if incoming.batch_id is not None or not await self._came_up(refused):
                raise  # a line of a batch comes again later, and can be given up meanwhile
            run = await acceptance.open(incoming, view, key, started_at)
        run.rate_headers = rate_headers
        if resumed is not None:
            if asked.accepted is not None:
                asked.accepted(resumed.accepted(run.intent.request_id))
            run.previous_response_id, run.is_kept = resumed.previous, resumed.is_kept and not resumed.is_brief
        if run.intent.decision.exploration_pico_usd and self.exploration is not None:
            self.exploration.began(run.intent.request_id, run.intent.decision)
        if self.implied is not None:
            self.implied.began(run)
        if key.keeps_bodies and self.bodies is not None and incoming.operation not in MEDIA:
            caller = self.bodies.listen(caller, request_id=run.intent.request_id, key_id=key.id, body=asked.body)
        if self.shadows is not None:
            caller = self.shadows.listen(caller, run)
        if (kept := self.kept_responses) is not None:
            caller = keeping(kept, caller, resumed, run.intent.request_id)
            if self.kept_conversations is not None and resumed is not None and resumed.belonging is not None:
                is_cancelled = partial(kept.is_cancelled, resumed, f"resp_{run.intent.request_id}")
                belonging = resumed.belonging
                caller = BelongingCaller(caller, self.kept_conversations, belonging, resumed.items, is_cancelled)
        await self._booked(run, books, self._serve_cached(run, incoming.cache_seconds, books, caller))

    async def serve_apart(self, run: Run, caller: Caller) -> None:
        """A request of our own rather than a caller's: booked like any other, but its money is held already and no rate
        counts it."""
        books = Bookkeeper(self.ledger, self.admission, self.observer, self.monotonic, self.upstreams.speeds)
        self.ledger.intend(run.intent)
        await self._booked(run, books, self._serve(run, books, caller))

    async def _booked(self, run: Run, books: Bookkeeper, serving: Awaitable[None]) -> None:
        """The request is settled however `serving` ends."""
        try:
            await serving
        except asyncio.CancelledError:
            await asyncio.shield(books.settle(run, Status.cancelled, http_status=499, error="client_disconnected"))
            raise
        except Exception as error:
            # The request was accepted, so it is booked before the failure is reported to anyone.
            await books.settle(run, Status.failed, http_status=500, error=type(error).__name__)
            raise

    def identify(self, incoming: Incoming) -> KeyRecord:
        """The key of whoever asks for a model. Raises RequestError."""
        key = self.keys.authenticate(incoming.credential, self.now_us())
        require_model_access(key)
        return key

    async def read_whole(self, incoming: Incoming, key: KeyRecord) -> Incoming:
        """The request with references to stored items resolved, but compactions as they are. Raises RequestError."""
        belonging = None
        if incoming.operation in RESPONSES and (named := self._own_conversation(incoming)) is not None:
            conversations, conversation_id = named
            belonging = await conversations.read(tenant_of(key.team, key.id), conversation_id)
        return (await self._resumed(incoming, key, belonging))[0]

    def _own_conversation(self, incoming: Incoming) -> tuple[KeptConversations, str] | None:
        """The conversation that the request belongs to, if it was created here. Raises InvalidRequest."""
        name = named_conversation(incoming.body) if self.kept_conversations is not None else None
        return None if name is None or self.kept_conversations is None else (self.kept_conversations, name)

    async def _resumed(
        self, incoming: Incoming, key: KeyRecord, belonging: Belonging | None
    ) -> tuple[Incoming, Resumed | None]:
        if self.kept_responses is None or incoming.operation not in RESPONSES:
            return incoming, None
        return await self.kept_responses.resume(incoming, tenant_of(key.team, key.id), belonging)

    def room_for(self, whole: Incoming, asked: Incoming) -> AbstractContextManager[None]:
        """Reserves memory for the resolved references while the request is in progress. Raises Overloaded."""
        if whole is asked or self.kept_responses is None:
            return nullcontext()
        return self.kept_responses.room(max(0, len(whole.body) - len(asked.body)))

    def decide(self, view: RequestView, key: KeyRecord, tags: tuple[str, ...], at_us: int | None = None) -> Choice:
        """Classify and decide. `/v1/route` shows this very result, so it cannot differ from the data path.

        Uses the prices at `at_us`, the request's own time; now if omitted.
        """
        candidates = self.priced_at(self.now_us() if at_us is None else at_us).candidates
        state = self.upstreams.state(candidates.values(), self.monotonic())
        warm = self.warm.lookup(tenant_of(key.team, key.id), view.prefixes, self.monotonic())
        sent = warm.pop(SENT, 0)
        facts = gather_facts(
            view,
            self._classify(view),
            candidates,
            warm_tokens=warm,
            backend_state=state,
            draw=self.draw(),
            rules=self.rule_state,
            repeated_tokens=self._tokens_to_repeat(view, sent),
            expected_tokens=expected_tokens(view, candidates.values()) if view.output_tokens else {},
        )
        try:
            return decide(request_facts(view, key, tags, facts), self.snapshot)
        except NoEligibleModel as refused:
            if self.upstreams.cut_short([candidates[name] for name in refused.reasons], self.monotonic()):
                return self.decide(view, key, tags, at_us)
            paused = [name for name, why in refused.reasons.items() if why == PAUSED]
            named = [candidates[name] for name in paused or refused.reasons]
            refused.retry_after_seconds = self.upstreams.wait_seconds(named, self.monotonic()) or None
            if LOADING in refused.reasons.values():
                refused.retry_after_seconds = RETRY_SECONDS
            raise

    def _tokens_to_repeat(self, view: RequestView, sent_tokens: int) -> int:
        """0 if this gateway marks no prompts for caching, so that the ledger records nothing about it."""
        if not self.marks_prompts or view.reuse is None:
            return 0
        return tokens_to_repeat(
            input_tokens=view.input_tokens,
            sent_tokens=sent_tokens,
            first_turn_tokens=view.reuse.first_turn_tokens,
            beginning_tokens=view.reuse.beginning_tokens,
            opens_tool_use=view.reuse.opens_tool_use,
        )

    def priced_at(self, at_us: int) -> Snapshot:
        """The snapshot for deciding and charging a request made at that moment: the one in force, with the prices due
        by then."""
        snapshot = self.snapshot
        if not snapshot.prices_at_us <= at_us < snapshot.prices_until_us and self.snapshot_at is not None:
            snapshot = self.snapshot = self.snapshot_at(at_us)
        return snapshot

    async def _came_up(self, refused: NoEligibleModel) -> bool:
        """Whether an engine was merely loading and became ready in time. Nothing is booked yet; the caller may leave
        meanwhile."""
        loading = [self.snapshot.candidates[name] for name, why in refused.reasons.items() if why == LOADING]
        return bool(loading) and await self.upstreams.starting.wait(loading[0].backend, seconds=self.loading_seconds)

    def tags_to_book(self, key_id: str, tags: tuple[str, ...], at_us: int) -> tuple[str, ...]:
        return self.tags.booked(key_id, tags, at_us, lambda: deciding_tags(self.snapshot))

    def known_models(self) -> frozenset[str]:
        return frozenset(self.snapshot.candidates)

    def _classify(self, view: RequestView) -> Classification | None:
        if self.classifier is None or view.operation in SPECIALTIES:
            return None
        try:
            return self.classifier.classify(view.conversation)
        except Exception:
            log.exception("classifier failed; the request is decided without it")
            self.observer.unclassified()
            return None

    async def _serve_cached(self, run: Run, cache_seconds: int | None, books: Bookkeeper, caller: Caller) -> None:
        """From the response cache if the caller asked for it; otherwise as usual."""
        ticket = self.responses.ticket(run, cache_seconds, self.snapshot.cache_seconds)
        if ticket is None:
            await self._serve(run, books, caller)
        elif not await ticket.replay(run, books, caller):
            sent = Recording(caller)
            await self._serve(run, books, sent)
            caller.outlive()  # it may leave with its answer while that is kept
            await ticket.keep(run, sent)

    def names_of(self, team: str | None) -> ResponseNames | None:
        """The names under which a team knows responses that providers store for it."""
        return ResponseNames(self.keys.response_secret(team)) if team else None

    async def _serve(self, run: Run, books: Bookkeeper, caller: Caller) -> None:
        dispatcher = Dispatcher(
            backends=self.backends,
            upstreams=self.upstreams,
            books=books,
            observer=self.observer,
            timeouts=self.timeouts,
            policy=self.retry_policy,
            monotonic=self.monotonic,
            salt=lambda run: self.keys.cache_salt(run.intent.tenant),
            names=lambda run: self.names_of(run.intent.team),
        )
        found = await (dispatcher.first_output(run) if run.choice.escalation is None else cascade(run, dispatcher))
        answer = found if isinstance(found, Answer) else await dispatcher.give_up(run, found)
        if run.candidate.backend in self.drains:
            caller.outlive()
        delivery = Delivery(run, caller, books, self.upstreams, self.monotonic)
        try:
            await (delivery.stream(answer) if run.view.is_stream else delivery.whole(answer))
        finally:
            self.upstreams.ended(run.candidate)
            if run.entry is not None:
                now, prefixes = self.monotonic(), run.view.prefixes
                note_answer(self.warm, self.prompt_caches, run.entry, prefixes, now, notes_sent=self.marks_prompts)
            await answer.reply.aclose()
