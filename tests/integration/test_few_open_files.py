"""`breakeven serve` with a low limit of open files: idle connections make room, and providers are not blamed."""

import re
import resource
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.integration.served_home import command_of, environment_of, write_home
from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.integration
FILES = 256
MAKES_ROOM = "from now on those that wait longest for a request are closed; raise the limit"


@dataclass(frozen=True, slots=True)
class Service:
    process: subprocess.Popen[bytes]
    port: int
    key: str
    log: Path

    def call(self) -> httpx.Response:
        """Sends a request on a new connection."""
        asked = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}
        url, headers = f"http://127.0.0.1:{self.port}/v1/chat/completions", {"authorization": f"Bearer {self.key}"}
        return httpx.post(url, json=asked, headers=headers, timeout=PATIENCE_SECONDS)

    def allow_files(self, files: int) -> None:
        resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (files, FILES))


@pytest.fixture(scope="module")
def service(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = write_home(tmp_path_factory.mktemp("files"), provider)
    port, log = free_port(), home / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", f'ulimit -n {FILES}; exec "$@"', "-", *command_of(port)],
            stdout=output,
            stderr=output,
            env=environment_of(home),
        )
    try:
        wait_until(lambda: b"Ready." in log.read_bytes() or process.poll() is not None)
        key = re.search(r"app key.*(bk-\S+)", log.read_text("utf-8"))
        assert key is not None, log.read_text("utf-8")
        yield Service(process, port, key[1], log)
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes another process's limits")
def test_want_of_files_is_told_and_not_held_against_the_provider(service: Service) -> None:
    """Must be the first test with this service: no earlier call has left a connection to the provider that could be
    reused."""
    asked = {"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=PATIENCE_SECONDS, headers=headers) as client:
        client.get("/healthz")
        service.allow_files(3)
        refusals = [client.post("/v1/chat/completions", json=asked) for _ in range(6)]  # more than open a breaker
        service.allow_files(FILES)
        for refusal in refusals:
            assert refusal.status_code == 503
            assert refusal.headers["retry-after"] == "1"
            assert "this process has reached its limit of open files; raise it" in refusal.json()["error"]["message"]
        assert client.post("/v1/chat/completions", json=asked).status_code == 200


def test_connections_that_only_wait_make_room_for_calls(service: Service) -> None:
    assert MAKES_ROOM not in service.log.read_text()
    idle: list[socket.socket] = []
    for number in range(400):
        idle.append(socket.create_connection(("127.0.0.1", service.port), PATIENCE_SECONDS))
        if number % 2:
            idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")

    def is_answered() -> bool:
        try:
            return service.call().status_code == 200
        except httpx.TransportError:  # the burst exceeded the limit: accepted and closed by the event loop
            return False

    wait_until(lambda: all(is_answered() for _ in range(5)))
    assert MAKES_ROOM in service.log.read_text()
    for connection in idle:
        connection.close()
