"""A key for one run of a command on the machine that holds the state: made for a day, revoked at the end."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from gateway.cli.state import open_state
from gateway.clock import now_us
from gateway.instants import DAY_US
from gateway.stores import NewKey


@asynccontextmanager
async def demo_key(given: str) -> AsyncGenerator[str]:
    """The given key, or a fresh one that is revoked when the block ends. Raises StateError without a deployment."""
    if given:
        yield given
        return
    async with open_state() as state:
        expires = now_us() + DAY_US
        listed, secret = await state.keys.create(
            NewKey("demo", "app", team="demo", expires_at_us=expires), author="breakeven demo"
        )
        try:
            yield secret
        finally:
            await state.keys.revoke(listed.record.id, author="breakeven demo")
