"""Decides which tokens the next step computes. No torch, no clock.

One rule: every request's computed tokens catch up with its tokens, under a budget per step. A long prompt takes several
steps (chunked prefill), a decode is a request one token behind, a verified draft a request several behind, a cached
prefix a request with a head start. When blocks run out, or a more important request waits, the least important and
youngest request is preempted: it returns its blocks and recomputes later, mostly from its own cached prefix.

A batch may be scheduled while the previous one still runs: `begin` counts its tokens as computed and drawn, `complete`
later says what they are. The device executes batches in order, so returned blocks may be reused at once.
"""

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from local_engine.kv_cache_manager import KvCacheManager
from local_engine.request import Request, Status

_rank: Final = attrgetter("rank")


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens `start` to `start + count` of one request, of which the last `drafts` are drafts.

    `needs_logits`: the row reaches the request's last token and something is drawn; `preemptions`: how often the
    request had been preempted by then.
    """

    request: Request
    start: int
    count: int
    drafts: int
    needs_logits: bool
    preemptions: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's work. `unfit` are requests that can never run, as the whole pool is too small for them."""

    rows: tuple[Row, ...]
    unfit: tuple[Request, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens computed in this step."""
        return sum(row.count for row in self.rows)


@dataclass(slots=True)
class _Plan:
    """A step under construction: its rows, its remaining budget, and the blocks that it computes.

    `is_closed`: no more requests may start in it.
    """

    budget: int
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    coming: set[bytes] = field(default_factory=set[bytes])
    unfit: list[Request] = field(default_factory=list[Request])
    is_closed: bool = False


class Scheduler:
    """Queues of waiting and running requests over one KV cache."""

    def __init__(
        self,
        kv_cache: KvCacheManager,
        *,
        max_running_requests: int,
        max_tokens_per_step: int,
        chunk_alignment: int | None = None,
    ) -> None:
        if chunk_alignment is not None and chunk_alignment > max_tokens_per_step:
            raise ValueError("a step must have room for one aligned chunk")
        self._kv_cache = kv_cache
        self._max_running = max_running_requests
        self._max_tokens = max_tokens_per_step
        self._chunk_alignment = chunk_alignment
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = 0
        self._arrivals = 0

    def add(self, request: Request) -> None:
        """Queues a request by its rank: after its equals and before less important ones that have not waited long."""
        request.arrival_order = self._arrivals
        self._arrivals += 1
        self._enqueue(request)

    def _enqueue(self, request: Request) -> None:
        request.status = Status.WAITING
        insort(self.waiting, request, key=_rank)

    def schedule(self) -> Batch:
        """Chooses the next step's rows and reserves their blocks: answers first, then prompts."""
        plan = _Plan(self._max_tokens)
        self._give_places()
        for request in sorted((one for one in self.running if not _is_prompt(one)), key=_rank):
            self._go_on(request, plan, plan.budget)
        prompts = [one for one in self.running if _is_prompt(one)]
        if len(self.running) < self._max_running:
            prompts += self.waiting
        if prompts and plan.budget > 0:
            self._fill(sorted(prompts, key=_rank), plan)
        return Batch(rows=tuple(plan.rows.values()), unfit=tuple(plan.unfit))

    def _give_places(self) -> None:
        """Preempts less important requests for waiting ones if there are too few places."""
        for request in self.waiting[max(0, self._max_running - len(self.running)) :]:
            victim = self._less_important(request)
            if victim is None:
                return
            self._preempt(victim)

    def _less_important(self, request: Request) -> Request | None:
        """The running request that gives way to this one: the last in rank of those less important and behind it.

        One that has waited its time is not behind it, or it would be preempted by each that comes.
        """
        behind = (one for one in self.running if one.priority > request.priority and one.rank > request.rank)
        return max(behind, key=_rank, default=None)

    def _fill(self, prompts: list[Request], plan: _Plan) -> None:
        """Spend the budget left by answers on prompts, in order. But while the first needs more than one step, those
        with less left to compute go before it, with up to half of the budget.

        So long prompts do not delay a short one, and the first takes at most twice as many steps.
        """
        plan.coming = {name for request in self.running for name in self._coming_blocks(request, plan.rows)}
        first, *others = prompts
        quick, share = self._quick(first, others, plan.budget)
        self._take(first, plan, plan.budget - share)
        for request in quick:
            self._take(request, plan, plan.budget)
        self._lengthen(first, plan)
        for request in others:
            if request.request_id not in plan.rows:
                self._take(request, plan, plan.budget)

    def _quick(self, first: Request, others: list[Request], budget: int) -> tuple[list[Request], int]:
        """The prompts that go before the first one, shortest first, and the tokens it leaves to them."""
        # Aligned chunks use only part of the budget and cannot be cut.
        if self._chunk_alignment is not None or first.pending_tokens <= budget:
            return [], 0
        left = {one: self._left(one) for one in (first, *others) if one.priority == first.priority}
        quick = sorted((one for one in left if left[one] < left[first]), key=left.__getitem__)
        return quick, min(budget // 2, sum(left[one] for one in quick))

    def _left(self, request: Request) -> int:
        """Tokens still to compute, not counting cached ones."""
        is_waiting = request.status is Status.WAITING
        return request.pending_tokens - (self._kv_cache.cached_prefix(request) if is_waiting else 0)

    def _take(self, request: Request, plan: _Plan, most: int) -> None:
        if request.status is Status.RUNNING:
            self._go_on(request, plan, most)
        elif not plan.is_closed and most > 0:
            self._start(request, plan, most)
        plan.coming.update(self._coming_blocks(request, plan.rows))

    def _go_on(self, request: Request, plan: _Plan, most: int) -> None:
        """Gives a running request up to `most` tokens of the step."""
        if request.status is not Status.RUNNING:
            return
        count, returned = self._reserve(request, most, plan.rows)
        plan.budget += returned
        if count:
            self._enter(request, count, plan)

    def _start(self, request: Request, plan: _Plan, most: int) -> None:
        """Start a waiting request, or close the step to those behind it: when blocks or places are used up, or when it
        was preempted after its draw had begun, so that its tokens are known only after that step.

        If its next block is being computed by another request in this step it waits, to find it cached afterwards.
        """
        if request.in_flight_tokens or len(self.running) >= self._max_running:
            plan.is_closed = True
            return
        cached = self._kv_cache.attach_cached_prefix(request)
        if self._kv_cache.next_block(request) in plan.coming:
            self._kv_cache.release(request)
            return
        count = self._count(request, most)
        if not count or not self._reserve_new(request, count, plan):
            self._kv_cache.release(request)
            if count and not self.running:
                self.waiting.remove(request)
                plan.unfit.append(request)
            else:
                plan.is_closed = True
            return
        if request.cached_prompt_tokens is None:
            request.cached_prompt_tokens = cached
        self.waiting.remove(request)
        request.status = Status.RUNNING
        self.running.append(request)
        self._enter(request, count, plan)

    def _reserve_new(self, request: Request, count: int, plan: _Plan) -> bool:
        """Reserves blocks for a request that does not run yet, preempting less important ones."""
        while not self._kv_cache.reserve(request, count):
            if (victim := self._less_important(request)) is None:
                return False
            plan.budget += self._give_way(victim, plan.rows)
        return True

    def _lengthen(self, request: Request, plan: _Plan) -> None:
        """Extends a row by the budget that those before it left, as far as blocks are free."""
        row = plan.rows.get(request.request_id)
        if row is None:
            return
        count = self._count(request, row.count + plan.budget)
        if count > row.count and self._kv_cache.reserve(request, count):
            plan.budget += row.count
            self._enter(request, count, plan)
            plan.coming.update(self._coming_blocks(request, plan.rows))

    def _enter(self, request: Request, count: int, plan: _Plan) -> None:
        plan.rows[request.request_id] = _row(request, count)
        plan.budget -= count

    def _coming_blocks(self, request: Request, rows: dict[str, Row]) -> list[bytes]:
        """Hashes of the blocks that this step, or an earlier one still running, fills for a running request."""
        row = rows.get(request.request_id)
        computed = request.computed_tokens if row is None else row.start + row.count - row.drafts
        return self._kv_cache.unregistered_blocks(request, computed)

    def _reserve(self, request: Request, budget: int, rows: dict[str, Row]) -> tuple[int, int]:
        """Reserve blocks for a running request, giving up drafts first and less important requests second.

        Returns the tokens reserved, 0 if the budget is used up or the request itself was preempted, and the tokens that
        removed rows return to the budget of later ones.
        """
        returned = 0
        while (count := self._count(request, budget)) and not self._kv_cache.reserve(request, count):
            if request.draft_token_ids:
                request.draft_token_ids = []
                continue
            victim = max(self.running, key=_rank)
            returned += self._give_way(victim, rows)
            if victim is request:
                return 0, returned
        return count, returned

    def _give_way(self, victim: Request, rows: dict[str, Row]) -> int:
        """Preempts a request in the middle of a step; returns its tokens in the step."""
        self._preempt(victim)
        row = rows.pop(victim.request_id, None)
        return 0 if row is None else row.count

    def _count(self, request: Request, budget: int) -> int:
        """Tokens of this request in the step: all pending ones, or a chunk that ends on an aligned position.

        None while its last token is being drawn. Drafts beyond the chunk are dropped, so that a row either verifies all
        its drafts or has none.
        """
        if request.in_flight_tokens and request.length >= request.longest:
            return 0
        count = min(request.pending_tokens, budget)
        if self._chunk_alignment is not None:
            count = _aligned_chunk(request, self._chunk_alignment)
            count = count if count <= budget else 0
        undrafted = request.length - request.computed_tokens
        request.draft_token_ids = request.draft_token_ids[: max(0, count - undrafted)]
        return count

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._kv_cache.release(request)
        request.draft_token_ids = []
        request.preemptions += 1
        self.preemptions += 1
        self._enqueue(request)

    def begin(self, batch: Batch) -> None:
        """Counts the batch as computed: the device has accepted it."""
        for row in batch.rows:
            row.request.computed_tokens = row.start + row.count
            row.request.in_flight_tokens += row.needs_logits

    def complete(self, row: Row, new_token_ids: list[int]) -> None:
        """Records a computed row: `new_token_ids` are the accepted drafts and the token drawn after them."""
        request = row.request
        request.in_flight_tokens -= row.needs_logits
        request.token_ids.extend(new_token_ids)
        if row.preemptions != request.preemptions:
            return
        computed = row.start + row.count - row.drafts + max(0, len(new_token_ids) - 1)
        if row.drafts:
            request.computed_tokens = computed
            request.draft_token_ids = []
        self._kv_cache.register_computed(request, computed)

    def remove(self, request: Request) -> None:
        """Removes a request from any queue and frees its blocks. Idempotent."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        if request.status is not Status.FINISHED:
            self._kv_cache.release(request)
            request.status = Status.FINISHED


def _aligned_chunk(request: Request, alignment: int) -> int:
    """Chunks of prompts end on multiples of the alignment or at the prompt's end; answers go token by token, even
    resumed.

    So a request is computed in the same pieces whatever runs beside it.
    """
    at = request.computed_tokens
    if at >= request.prompt_tokens:
        return 1
    return min(request.prompt_tokens, (at // alignment + 1) * alignment) - at


def _is_prompt(request: Request) -> bool:
    """Whether more than the last drawn token is left to compute. Answers come before prompts, which would otherwise use
    up the step's budget."""
    return request.length - request.computed_tokens > 1


def _row(request: Request, count: int) -> Row:
    start = request.computed_tokens
    reaches_end = start + count == request.length + len(request.draft_token_ids)
    return Row(
        request=request,
        start=start,
        count=count,
        drafts=len(request.draft_token_ids) if reaches_end else 0,
        needs_logits=reaches_end and request.draws,
        preemptions=request.preemptions,
    )
