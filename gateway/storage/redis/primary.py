"""Where the primary is: Sentinels are asked for its address, nodes of a cluster for the one that has our keys."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, AuthenticationError, MovedError, RedisError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.utils import str_if_bytes

from gateway.config.redis_addresses import RedisAddress
from gateway.process.tasks import end_tasks

Place = tuple[str, int]
Connecting = Callable[[Place], AbstractConnection]
"""Makes a connection to one of the servers that are asked, which is not connected yet."""
MOST_NODES = 5
WORDS: Final = {
    "sentinel": ("Sentinels", "does not know the user or password, whose options are sentinel_username and _password"),
    "cluster": ("nodes of the cluster", "does not know the user or password of the address"),
}
ROOT = "{breakeven}"
"""The braces put all keys into one slot of a cluster, so on one node, where a script may use them together."""


class Primary:
    """All servers of `address` are asked at once: those that are down would take as long as a connection may."""

    def __init__(self, address: RedisAddress, connecting: Connecting) -> None:
        self._servers = address.servers
        self._name = address.primary
        self._connecting = connecting
        self._ask = self._ask_sentinel if address.kind == "sentinel" else self._ask_node
        self._asked, self._unknown = WORDS[address.kind]

    async def find(self) -> Place:
        """Raises ConnectionLost."""
        asked = [asyncio.create_task(self._ask(server)) for server in self._servers]
        said: list[str] = []
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    return await answer
                except ConnectionLost as error:
                    said.append(str(error))
        finally:
            await end_tasks(asked)
        raise ConnectionLost(f"none of the {len(asked)} {self._asked} says where the primary is: {'; '.join(said)}")

    async def _ask_sentinel(self, sentinel: Place) -> Place:
        async with self._connected(sentinel) as connection:
            await connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
            found = cast(list[str | bytes] | None, await connection.read_response())
        if found is None:
            raise ConnectionLost(f"{_text(sentinel)} watches no primary that it calls {self._name}")
        return str_if_bytes(found[0]), int(found[1])

    async def _ask_node(self, node: Place) -> Place:
        """Follows it to the node that has our keys: it may not have heard yet that they were moved on."""
        for _ in range(MOST_NODES):
            async with self._connected(node) as connection:
                try:
                    await connection.send_command("EXISTS", ROOT)
                    await connection.read_response()
                except MovedError as error:
                    node = error.host or node[0], error.port
                    continue
                except AskError:
                    pass  # its slot is on its way to another node, and its own until it is there
            return node
        raise ConnectionLost(f"{_text(node)} is one of several nodes that send each other for our keys")

    @asynccontextmanager
    async def _connected(self, server: Place) -> AsyncGenerator[AbstractConnection]:
        connection = self._connecting(server)
        try:
            await connection.connect()
            yield connection
        except (RedisError, OSError) as error:
            reason = self._unknown if isinstance(error, AuthenticationError) else " ".join(str(error).split())
            raise ConnectionLost(f"{_text(server)}: {reason}") from error
        finally:
            await connection.disconnect(nowait=True)


def _text(server: Place) -> str:
    return f"{server[0]}:{server[1]}"
