"""From the first output to the last byte: passes chunks on to the caller, meters them, settles, and sends the end."""

import contextlib
from collections.abc import Callable

import msgspec

from backends.errors import BackendError, StreamBroken
from backends.protocol import EVENT_STREAM, Chunk
from gateway.errors import LedgerUnavailable
from gateway.ledger.entry import Status
from gateway.request.answer_parts import answer_headers, budget_end, cost_text, stream_error
from gateway.request.bookkeeping import Bookkeeper
from gateway.request.run import Answer, Caller, Run
from gateway.upstreams.load import Upstreams

COMPLETED = Status.completed  # an enum lookup costs as much as three calls
CHECKPOINT_CHARACTERS = 1024  # about 256 output tokens
CHECKPOINT_SECONDS = 5.0
TAIL_SECONDS = 5.0
"""How long to wait for the usage after an answer's end if the caller has left. Many clients leave at `finish_reason`,
and the usage that follows is what the provider bills."""


class Delivery(msgspec.Struct):
    """Delivers one answer to one caller."""

    run: Run
    caller: Caller
    books: Bookkeeper
    upstreams: Upstreams
    monotonic: Callable[[], float]
    checkpointed_at: float = 0.0
    checkpointed_characters: int = 0
    is_told: bool = False
    """The caller received the whole answer."""

    async def whole(self, answer: Answer) -> None:
        """Settles a non-streamed answer, then sends it."""
        entry = await self.books.settle(self.run, COMPLETED, http_status=200)
        headers = answer_headers(self.run)
        if entry.cost is not None:
            headers["x-breakeven-cost-usd"] = cost_text(entry.cost.total_pico_usd)
        await self.caller.start(status=200, content_type=answer.reply.content_type, headers=headers)
        await self.caller.send(answer.first[-1].payload, chunk=answer.first[-1], is_last=True)

    async def stream(self, answer: Answer) -> None:
        """Passes a stream on chunk by chunk; the last one is sent only after the entry is settled."""
        try:
            await self._stream(answer)
        except LedgerUnavailable as error:  # logged once, by the journal
            with contextlib.suppress(LedgerUnavailable):
                await self.books.settle(self.run, Status.partial, http_status=200, error=type(error).__name__)
            await self.caller.send(stream_error(self.run, StreamBroken(str(error))), is_last=True)

    async def _stream(self, answer: Answer) -> None:
        run, caller = self.run, self.caller
        await caller.start(status=200, content_type=answer.reply.content_type, headers=answer_headers(run))
        self.checkpointed_at = self.monotonic()
        try:
            last = await self._pass_on(answer)
        except BackendError as error:
            self.upstreams.failed(run.candidate, run.key, error, self.monotonic())
            run.meter.usage = error.usage or run.meter.usage
            await self.books.settle(run, Status.partial, http_status=200, error=type(error).__name__)
            if answer.reply.content_type == EVENT_STREAM:
                await caller.send(stream_error(run, error), is_last=True)
            return  # plain bytes cannot carry an error: the missing end shows it
        if last is None:
            run.meter.finish_reason = "length"
            await self.books.settle(run, COMPLETED, http_status=200, error="budget_reached")
            await caller.send(budget_end(run), is_last=True)
            return
        if caller.is_gone and not self.is_told:
            await self.books.settle(run, Status.cancelled, http_status=499, error="client_disconnected")
            return
        await self.books.settle(run, COMPLETED, http_status=200)
        await caller.send(last.payload, chunk=last, is_last=True)

    async def _pass_on(self, answer: Answer) -> Chunk | None:
        """Sends every chunk but the last, which is returned; None if the budget is used up."""
        send, meter = self.caller.send, self.run.meter
        for chunk in answer.first:  # the meter has observed these already
            if chunk.is_done:
                return chunk
            if chunk.finish_reason is not None:
                self._tell_the_end()
            await send(chunk.payload, chunk=chunk)
            if self._is_checkpoint_due() and not await self._can_go_on():
                return None
        async for chunk in answer.rest:
            meter.observe(chunk, self.monotonic())
            if chunk.is_done:
                return chunk
            if chunk.finish_reason is not None:
                self._tell_the_end()
            await send(chunk.payload, chunk=chunk)
            if self._is_checkpoint_due() and not await self._can_go_on():
                return None
        return Chunk(b"")

    def _tell_the_end(self) -> None:
        """Marks the answer as received; the rest is still read. Not with several choices, as others may go on."""
        if self.run.view.choices == 1 and not self.caller.is_gone:
            self.is_told = True
            self.caller.outlive(TAIL_SECONDS)

    def _is_checkpoint_due(self) -> bool:
        meter = self.run.meter
        grown = meter.output_characters - self.checkpointed_characters
        if grown >= CHECKPOINT_CHARACTERS:
            return True
        return grown > 0 and (meter.last_output_at or 0.0) - self.checkpointed_at >= CHECKPOINT_SECONDS

    async def _can_go_on(self) -> bool:
        """Writes a checkpoint, and holds the money for the next increment."""
        self.books.checkpoint(self.run)
        self.checkpointed_at = self.monotonic()
        self.checkpointed_characters = self.run.meter.output_characters
        return await self.books.can_go_on(self.run)
