"""Real Redis servers that watch each other: a cluster, and Sentinels with the two servers that they watch."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self, cast

from redis import Redis

from gateway.storage.redis.primary import ROOT
from tests.redis_server import PATIENT, RedisServer
from tests.waiting import wait_until

SLOTS: Final = 16_384
MASTERS: Final = 3
DEAD_AFTER_MS: Final = 2000
NEVER_DEAD_MS: Final = 600_000
"""On a stalled machine a shorter time would be a failover that no test wants."""
PRIMARY: Final = "mymaster"


def ask(server: RedisServer, *command: object) -> Any:
    with Redis(port=server.port, decode_responses=True) as client:
        return cast(Any, client.execute_command(*command))


def info(server: RedisServer, section: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], ask(server, "INFO", section))


def sentinel_file(file: Path, primary: RedisServer, *told: str) -> Path:
    file.write_text("\n".join((f"sentinel monitor {PRIMARY} 127.0.0.1 {primary.port} 2", *told, "")))
    return file


class _Fleet:
    """Started on entry, stopped on exit."""

    primary: RedisServer
    replica: RedisServer

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()

    def _start(self, name: str, *told: object, is_cluster: bool = False) -> RedisServer:
        place = self._directory / name
        place.mkdir()
        return self._stack.enter_context(RedisServer(place, is_cluster=is_cluster, told=[str(one) for one in told]))

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class RedisCluster(_Fleet):
    """Three masters, of which the first has our keys and `replica` follows it."""

    def __init__(self, directory: Path, *, dead_after_ms: int = NEVER_DEAD_MS) -> None:
        super().__init__(directory)
        self._dead_after_ms = dead_after_ms

    def __enter__(self) -> Self:
        timeout = ("--cluster-node-timeout", self._dead_after_ms, "--repl-diskless-sync-delay", 0)
        self.nodes = [self._start(f"node-{number}", *timeout, is_cluster=True) for number in range(MASTERS + 1)]
        *self.masters, self.replica = self.nodes
        self.primary, *self.others = self.masters
        self.slot = int(ask(self.nodes[0], "CLUSTER", "KEYSLOT", ROOT))
        ours = self.slot * MASTERS // SLOTS
        for number, master in enumerate((*self.masters[-ours:], *self.masters[:-ours]) if ours else self.masters):
            slots = range(number * SLOTS // MASTERS, (number + 1) * SLOTS // MASTERS)
            ask(master, "CLUSTER", "ADDSLOTS", *slots)
        for epoch, node in enumerate(self.nodes, 1):
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
            for other in self.nodes[:epoch]:
                ask(node, "CLUSTER", "MEET", "127.0.0.1", other.port)
        wait_until(lambda: all(self._knows_all(node) for node in self.nodes))
        ask(self.replica, "CLUSTER", "REPLICATE", ask(self.primary, "CLUSTER", "MYID"))
        wait_until(lambda: info(self.replica, "replication").get("master_link_status") == "up")
        return self

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in self.nodes)}/0?{PATIENT}"

    def flush(self) -> None:
        for master in self.masters:
            master.flush()

    def begin_to_move(self, target: RedisServer, *names: str) -> None:
        """Leaves our slot where only keys of these names are at the target."""
        ask(target, "CLUSTER", "SETSLOT", self.slot, "IMPORTING", ask(self.primary, "CLUSTER", "MYID"))
        ask(self.primary, "CLUSTER", "SETSLOT", self.slot, "MIGRATING", ask(target, "CLUSTER", "MYID"))
        self._move_keys(target, *names)

    def end_the_move(self, target: RedisServer) -> None:
        while names := ask(self.primary, "CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            self._move_keys(target, *names)
        for node in (target, self.primary):
            ask(node, "CLUSTER", "SETSLOT", self.slot, "NODE", ask(target, "CLUSTER", "MYID"))

    def _move_keys(self, target: RedisServer, *names: str) -> None:
        if names:
            ask(self.primary, "MIGRATE", "127.0.0.1", target.port, "", 0, 60_000, "KEYS", *names)

    def _knows_all(self, node: RedisServer) -> bool:
        state = str(ask(node, "CLUSTER", "INFO"))
        return "cluster_state:ok" in state and f"cluster_known_nodes:{len(self.nodes)}" in state


class Sentinels(_Fleet):
    """Three of them, a primary and its replica."""

    def __enter__(self) -> Self:
        self.primary = self._start("primary", "--repl-diskless-sync-delay", 0)
        self.replica = self._start("replica", "--replicaof", "127.0.0.1", self.primary.port)
        wait_until(lambda: info(self.replica, "replication").get("master_link_status") == "up")
        self.sentinels = [self._start_sentinel(number) for number in range(3)]
        wait_until(lambda: all(self._knows_all(sentinel) for sentinel in self.sentinels))
        return self

    @property
    def url(self) -> str:
        servers = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{servers}/{PRIMARY}/0?{PATIENT}"

    def knows(self, sentinel: RedisServer) -> int:
        """The port of the primary, as that Sentinel says."""
        return int(ask(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY)[1])

    def _start_sentinel(self, number: int) -> RedisServer:
        times = (
            f"sentinel down-after-milliseconds {PRIMARY} {DEAD_AFTER_MS}",
            f"sentinel failover-timeout {PRIMARY} 2000",
        )
        file = sentinel_file(self._directory / f"sentinel-{number}.conf", self.primary, *times)
        return self._start(f"sentinel-{number}", file, "--sentinel")

    def _knows_all(self, sentinel: RedisServer) -> bool:
        told = ask(sentinel, "SENTINEL MASTER", PRIMARY)
        return told["num-other-sentinels"] == 2 and told["num-slaves"] == 1
