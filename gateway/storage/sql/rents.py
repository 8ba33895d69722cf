"""The history of what the deployment's GPUs cost per hour."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.economics.rent import GpuRent, dated_ahead, rents_begun
from gateway.storage.database import RENTS_LOCK, lock, writing
from gateway.storage.tables.administration import gpu_rents
from gateway.storage.tables.books import hourly


class SqlRents:
    """See gateway.sums.RentStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def rents(self) -> Sequence[GpuRent]:
        async with self._engine.connect() as connection:
            return await _read(connection)

    async def keep(self, present: Sequence[GpuRent], hour: int) -> None:
        known = await self.rents()
        if not rents_begun(known, present, hour) and not dated_ahead(known, hour):
            return  # an ordinary start writes nothing, and so does not need a writable database
        async with writing(self._engine) as connection:
            await lock(connection, RENTS_LOCK)
            known = await _read(connection)
            if ahead := dated_ahead(known, hour):
                if await _is_booked_between(connection, hour, min(rent.from_hour for rent in ahead)):
                    return  # this clock is behind: hours already charged keep their prices
                await connection.execute(delete(gpu_rents).where(gpu_rents.c.from_hour > hour))
                known = [rent for rent in known if rent not in ahead]
            for rent in rents_begun(known, present, hour):
                # An hour has one price: the last one set in it.
                same = (gpu_rents.c.backend == rent.backend) & (gpu_rents.c.from_hour == rent.from_hour)
                await connection.execute(delete(gpu_rents).where(same))
                await connection.execute(gpu_rents.insert().values(asdict(rent)))


async def _read(connection: AsyncConnection) -> list[GpuRent]:
    query = select(gpu_rents).order_by(gpu_rents.c.backend, gpu_rents.c.from_hour)
    return [GpuRent(**row) for row in (await connection.execute(query)).mappings()]


async def _is_booked_between(connection: AsyncConnection, hour: int, other_hour: int) -> bool:
    """Whether there are requests between the two hours: then that time really has passed."""
    between = select(hourly.c.hour).where(hourly.c.hour > hour, hourly.c.hour < other_hour).limit(1)
    return (await connection.execute(between)).first() is not None
