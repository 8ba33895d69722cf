"""A key for one run of a command on the machine that holds the state: made for a day, revoked at the end."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from gateway.access.keys import Role
from gateway.cli.state import open_state
from gateway.stores import NewKey

DAY_US = 86_400_000_000


@asynccontextmanager
async def demo_key(given: str, *, role: Role = "app") -> AsyncGenerator[str]:
    """The given key, or a fresh one that is revoked when the block ends. Raises StateError without a deployment."""
    if given:
        yield given
        return
    async with open_state() as state:
        expires = time.time_ns() // 1000 + DAY_US
        listed, secret = await state.keys.create(
            NewKey("demo", role, team="demo", expires_at_us=expires), author="breakeven demo"
        )
        try:
            yield secret
        finally:
            await state.keys.revoke(listed.record.id, author="breakeven demo")
