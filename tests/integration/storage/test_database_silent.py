"""A PostgreSQL server that accepts connections and says nothing: queries fail in bounded time, and work again later."""

import asyncio

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.errors import DatabaseDown
from gateway.storage.database import migrate, open_database
from gateway.storage.postgres import Patience
from tests.postgres_server import empty_postgres
from tests.silent_postgres import silent_postgres

pytestmark = pytest.mark.integration
PATIENCE_SECONDS = 300.0
SHORT = 0.2


async def ask(engine: AsyncEngine) -> object:
    async with engine.connect() as connection:
        return (await connection.execute(text("SELECT 1"))).scalar()


async def until_it_answers(engine: AsyncEngine) -> None:
    """Retries, in case this machine is too slow for the short timeouts of the test."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                assert await ask(engine) == 1
                return
            except DatabaseDown:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("patience", "held"),
    [
        (Patience(connect_seconds=SHORT), 0),
        (Patience(connect_seconds=1.0, sign_of_life_seconds=SHORT), 1),
        (Patience(connect_seconds=1.0, sign_of_life_seconds=SHORT), 5),
    ],
    ids=["before the first connection", "with a connection in the pool", "with all of them"],
)
async def test_a_server_that_falls_silent_is_told_as_down_and_heals(
    postgres_directory: str, patience: Patience, held: int
) -> None:
    await empty_postgres(postgres_directory)
    async with silent_postgres(postgres_directory) as (proxy, url):
        engine = open_database(url, patience)
        for _ in range(held):
            await until_it_answers(engine)
        await asyncio.gather(*(until_it_answers(engine) for _ in range(held)))
        proxy.silence()
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(2):
                with pytest.raises(DatabaseDown, match="see that it runs"):
                    await ask(engine)
        proxy.speak()
        await until_it_answers(engine)
        await engine.dispose()


async def test_a_question_under_way_is_given_up(postgres_directory: str) -> None:
    await empty_postgres(postgres_directory)
    async with silent_postgres(postgres_directory) as (proxy, url), asyncio.timeout(PATIENCE_SECONDS):
        engine = open_database(url, Patience(statement_seconds=3.0))
        await until_it_answers(engine)
        async with engine.connect() as connection:
            proxy.silence()
            with pytest.raises(DatabaseDown, match=r"did not answer in time, .* another session holds"):
                await connection.execute(text("SELECT 1"))
            assert connection.invalidated, "it is not asked to roll back either"
        proxy.speak()
        await until_it_answers(engine)
        await engine.dispose()


async def test_connections_that_the_server_gave_up_and_has_not_closed_are_replaced_unnoticed(
    postgres_directory: str,
) -> None:
    await empty_postgres(postgres_directory)
    async with silent_postgres(postgres_directory) as (proxy, url), asyncio.timeout(PATIENCE_SECONDS):
        engine = open_database(url)
        await asyncio.gather(*(until_it_answers(engine) for _ in range(3)))
        await proxy.say_that_it_goes()
        await asyncio.sleep(0.1)  # until the announcement has arrived; earlier it would be an ordinary answer
        assert await ask(engine) == 1
        await engine.dispose()


async def test_a_server_that_goes_as_we_come_is_down(postgres_directory: str) -> None:
    """The driver's words for it were taken for a mistake of ours: a traceback, and 500 instead of 503."""
    await empty_postgres(postgres_directory)
    async with silent_postgres(postgres_directory) as (proxy, url), asyncio.timeout(PATIENCE_SECONDS):
        engine = open_database(url)
        proxy.is_going = True
        with pytest.raises(DatabaseDown, match="see that it runs"):
            await ask(engine)
        proxy.is_going = False
        await until_it_answers(engine)
        await engine.dispose()


async def test_a_server_that_ends_each_new_connection_is_down(postgres_directory: str) -> None:
    engine = open_database(await empty_postgres(postgres_directory))

    @event.listens_for(engine.sync_engine, "checkout")
    def end(*_: object) -> None:
        raise InvalidatePoolError

    with pytest.raises(DatabaseDown, match="ends every connection"):
        await ask(engine)
    await engine.dispose()


async def test_a_migration_may_take_as_long_as_it_needs(postgres_directory: str) -> None:
    """It waits for the migration of another process, which is stalled here."""
    url = await empty_postgres(postgres_directory)
    engine = open_database(url, Patience(statement_seconds=None))
    async with engine.connect() as connection:
        await connection.execute(text("SELECT pg_sleep(1)"))
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        assert driver._config.command_timeout is None
    await engine.dispose()
    await migrate(url)
