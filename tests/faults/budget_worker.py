"""A worker's admission over real counters; the test keeps its books and moves its clock."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from gateway.clock import unstepped_seconds
from gateway.errors import BudgetExhausted
from gateway.limits.admission import Admission
from gateway.limits.budget_keeper import BudgetKeeper
from gateway.limits.counters import Account, CountersDown, Grant, Holding, Standing, budget_account
from gateway.limits.purse import Purse
from gateway.limits.treasury import Treasury
from gateway.limits.values import parse_limits, window_id
from gateway.process.tasks import end_tasks
from gateway.storage.redis.counters import RedisCounters, connect
from tests.redis_server import Reached
from tests.waiting import until

NANO = 1000
NOW_US = 1_795_000_000_000_000
ACCOUNT = budget_account("k", window_id("month", NOW_US))


class CutOff(RedisCounters):
    """The real counters, except while this one worker is cut off from them."""

    is_cut_off = False

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        self._be_cut_off()
        return await super().lease(account, limit=limit, holding=holding, need=need, want=want)

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        self._be_cut_off()
        return await super().report(holdings)

    def _be_cut_off(self) -> None:
        if self.is_cut_off:
            raise CountersDown("cut off")


class Worker:
    """A worker with one budget, in nano-dollars; its clock is `seconds` ahead."""

    def __init__(
        self,
        server: Reached,
        name: str,
        books: Mapping[Account, int],
        *,
        budget: int,
        fleet: str = "",
        wait_seconds: float = 60.0,
        settle_seconds: float = 1.5,
    ) -> None:
        self.client = connect(server.url)
        self.counters = CutOff(self.client, worker=name, fleet=fleet, settle_seconds=settle_seconds)
        self.seconds = 0.0
        treasury = Treasury(self.counters, monotonic=lambda: unstepped_seconds() + self.seconds)
        self.admission = Admission(
            limits={"k": parse_limits({"budget_usd": f"{budget * NANO}e-12"})},
            treasury=treasury,
            wait_seconds=wait_seconds,
        )
        self.purse: Purse = treasury.purse(ACCOUNT, budget * NANO)
        self._books = books
        self.keeper = BudgetKeeper(treasury, self.read)
        self._asked = 0

    async def read(self) -> dict[Account, int]:
        """What a reading of the books returns."""
        return {ACCOUNT: 0, **self._books}

    async def spend(self, amount: int) -> bool:
        """False when the budget is exhausted. The charge reaches the books only with `ship_all`."""
        self._asked += 1
        request = str(self._asked)
        try:
            await self.admission.reserve(request, "k", amount * NANO, now_us=NOW_US)
        except BudgetExhausted:
            return False
        self.admission.settle(request, amount * NANO)
        return True

    async def spend_all(self, amount: int) -> int:
        """Spends `amount` again and again until the budget refuses; returns the sum."""
        spent = 0
        while await self.spend(amount):
            spent += amount
        return spent

    def ship_all(self) -> None:
        """From now on the database has everything that was spent."""
        every = [str(number + 1) for number in range(self._asked)]
        self.admission.sending(every)
        self.admission.shipped(every)


@asynccontextmanager
async def two_workers(server: Reached) -> AsyncGenerator[tuple[Worker, Worker]]:
    """With a budget of 1,000 together. They report to the store in the background."""
    books: dict[Account, int] = {}
    workers = Worker(server, "one", books, budget=1000), Worker(server, "two", books, budget=1000)
    tasks = [asyncio.create_task(worker.keeper.run()) for worker in workers]
    try:
        for worker in workers:
            await until(lambda worker=worker: worker.spend(0))
        yield workers
    finally:
        await end_tasks(tasks)
        for worker in workers:
            await worker.counters.aclose()
