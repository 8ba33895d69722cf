"""Batches at workers that share a real PostgreSQL and Redis: whatever stops meanwhile, every line is in the output file
once and in the books once."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx
import openai
import psutil
import pytest
from openai.types import Batch

from tests.faults.fleet.replica import Replica
from tests.postgres_server import PostgresServer, empty_postgres
from tests.redis_server import RedisServer
from tests.scripted_provider.process import ProviderProcess, provider_process
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(600)]
CHATS = "/v1/chat/completions"
WORKERS = 2
COUNT = 40
AT_ONCE, ANSWERED_A_SECOND = 8, 20
DOWN_SECONDS = 2.0
CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends: {{provider: {{base_url: {provider}, provider: openai}}}}
"""


class Fleet:
    """One gateway of two workers, and its callers."""

    def __init__(
        self, replica: Replica, postgres: PostgresServer, redis: RedisServer, provider: ProviderProcess
    ) -> None:
        self.replica, self.postgres, self.redis, self.provider = replica, postgres, redis, provider
        self.start()
        self._owner = replica.owner_key()
        self._clients: list[openai.OpenAI] = []

    def start(self) -> None:
        self.replica.start()
        self.replica.wait_until_ready()

    def client(self, team: str, **limits: object) -> openai.OpenAI:
        """A client with a new key of this team, which every worker knows."""
        headers = {"authorization": f"Bearer {self._owner}"}
        body, url = {"name": team, "team": team, **limits}, f"{self.replica.url}/admin/v1/keys"
        key = httpx.post(url, headers=headers, json=body, timeout=PATIENCE_SECONDS).raise_for_status().json()["key"]
        self._clients.append(openai.OpenAI(base_url=f"{self.replica.url}/v1", api_key=key, max_retries=9))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def rows(self, query: str, *values: object) -> list[asyncpg.Record]:
        async def fetch() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(host=self.postgres.directory, user="postgres", database="postgres")
            try:
                return await connection.fetch(query, *values)
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def booked(self) -> Counter[str]:
        return Counter(row["request_id"].hex() for row in self.rows("select request_id from entries"))


@pytest.fixture(scope="module")
def fleet(
    running_postgres: PostgresServer, running_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A fleet whose provider takes 0.4 s for an answer."""
    running_redis.flush()
    database = asyncio.run(empty_postgres(running_postgres.directory))
    with provider_process("--first-delay", "0.4", "--before-hold", f"{ANSWERED_A_SECOND}") as provider:
        replica = Replica(
            tmp_path_factory.mktemp("fleet") / "home",
            provider=provider.url,
            database=database,
            redis=running_redis.url,
            workers=WORKERS,
            configuration=CONFIGURATION,
        )
        try:
            made = Fleet(replica, running_postgres, running_redis, provider)
            yield made
            made.close()
        finally:
            replica.terminate()
            replica.wait()


def line(number: int) -> dict[str, Any]:
    body = {"model": "auto", "messages": [{"role": "user", "content": f"hello {number}"}]}
    return {"custom_id": f"{number}", "method": "POST", "url": CHATS, "body": body}


def begun(client: openai.OpenAI, count: int = COUNT) -> Batch:
    content = b"".join(json.dumps(line(number)).encode() + b"\n" for number in range(count))
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=CHATS, completion_window="24h")


def completed(client: openai.OpenAI, batch: Batch) -> int:
    said = client.batches.retrieve(batch.id).request_counts
    return 0 if said is None else said.completed


def answered(client: openai.OpenAI, batch: Batch, count: int = COUNT) -> list[str]:
    """Waits until the batch is done; returns the request ids of its lines, each of which is there once and in its
    place."""
    wait_until(lambda: client.batches.retrieve(batch.id).status == "completed", f"{batch.id} is not done")
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id is not None
    answers = [json.loads(one) for one in client.files.content(done.output_file_id).text.splitlines()]
    assert [one["custom_id"] for one in answers] == [f"{number}" for number in range(count)]
    assert {one["response"]["status_code"] for one in answers} == {200}
    assert completed(client, done) == count
    return [one["response"]["request_id"] for one in answers]


def working_on(fleet: Fleet, batch: Batch) -> psutil.Process:
    [found] = fleet.rows("select runner from batches where id = $1", batch.id)
    journal = f"/{found['runner'].rpartition('/')[2]}/"
    workers = fleet.replica.worker_processes()
    [worker] = [one for one in workers if any(journal in file.path for file in one.open_files())]
    return worker


def listens(process: psutil.Process) -> bool:
    return any(one.status == psutil.CONN_LISTEN for one in process.net_connections("tcp"))


def until_booked(fleet: Fleet, before: Counter[str], requests: list[str]) -> None:
    """Waits until each of them is booked once, and nothing else."""
    wait_until(lambda: (fleet.booked() - before).total() >= len(requests), "not all are booked")
    assert fleet.booked() - before == Counter(requests)


def test_several_batches_of_two_teams_are_worked_on_by_two_workers(fleet: Fleet) -> None:
    """One team has more batches than one worker takes on."""
    red, blue = fleet.client("red"), fleet.client("blue")
    fleet.provider.hold()  # otherwise one worker might have done them all before the other looks for any
    batches = [(client, begun(client, 16)) for client in (red, red, blue, red, blue, red, red, red)]
    workers = "select distinct runner from batches where runner is not null"
    wait_until(lambda: len(fleet.rows(workers)) == WORKERS, "one worker takes none")
    fleet.provider.go_on()
    requests = [one for client, batch in batches for one in answered(client, batch, 16)]
    until_booked(fleet, Counter(), requests)
    by_team = "select d.team, count(*) as count from entries e join dimensions d on d.id = e.dimension_id group by 1"
    assert {row["team"]: row["count"] for row in fleet.rows(by_team)} == {"red": 6 * 16, "blue": 2 * 16}
    assert {one.id for one in blue.batches.list()} == {batch.id for client, batch in batches if client is blue}


def test_a_killed_workers_batch_goes_on(fleet: Fleet) -> None:
    """At the worker that replaces it under the same name, or at the other one."""
    client, before = fleet.client("red"), fleet.booked()
    fleet.provider.hold()  # otherwise it might be done before its worker is found
    batch = begun(client)
    wait_until(lambda: completed(client, batch) >= 10, "lines are answered")
    working_on(fleet, batch).kill()
    fleet.provider.go_on()
    requests = Counter(answered(client, batch))
    wait_until(lambda: requests <= fleet.booked() - before, "not all answers are booked")
    # What was under way, or answered in the second before, is asked again.
    assert COUNT <= (fleet.booked() - before).total() <= COUNT + AT_ONCE + ANSWERED_A_SECOND


def test_sigterm_lets_lines_end_and_the_next_process_asks_the_others(fleet: Fleet) -> None:
    client, before = fleet.client("red"), fleet.booked()
    fleet.provider.hold()
    batch = begun(client, 2 * COUNT)
    wait_until(lambda: completed(client, batch) >= 10, "lines are answered")
    worker = working_on(fleet, batch)
    fleet.replica.terminate()
    wait_until(lambda: not listens(worker), "it has not heard that it is to stop")
    fleet.provider.go_on()  # the rest takes seconds, and nothing else is left to do before it begins no more lines
    assert fleet.replica.wait() == 0
    assert fleet.replica.output.rstrip().endswith("Stopped.")
    [left] = fleet.rows("select status, runner from batches where id = $1", batch.id)
    assert tuple(left) == ("in_progress", None)
    fleet.start()
    until_booked(fleet, before, answered(client, batch, 2 * COUNT))


@pytest.mark.parametrize("least", [0, 10])
def test_a_database_that_stops_for_a_while_loses_no_line(fleet: Fleet, least: int) -> None:
    """Before the first line, and in the middle of the batch."""
    client, before = fleet.client("red"), fleet.booked()
    batch = begun(client)
    wait_until(lambda: completed(client, batch) >= least, "lines are answered")
    fleet.postgres.stop()
    try:
        time.sleep(DOWN_SECONDS)  # how long it is away is what is tried: no condition ends it sooner
    finally:
        fleet.postgres.start()
    until_booked(fleet, before, answered(client, batch))
    assert "Traceback" not in fleet.replica.output


@pytest.mark.parametrize(
    "limits", [{"budget_usd": "100"}, {"requests_per_minute": 6000}, {}], ids=["budget", "rate", "neither"]
)
def test_a_redis_that_is_gone_for_a_while_loses_no_line(fleet: Fleet, limits: dict[str, object]) -> None:
    """Where limits are counted in Redis, no line begins meanwhile that the leases do not allow."""
    client, before = fleet.client("red", limits=limits), fleet.booked()
    batch = begun(client)
    wait_until(lambda: completed(client, batch) >= 10, "lines are answered")
    fleet.redis.stop()
    try:
        time.sleep(DOWN_SECONDS)  # as above
    finally:
        fleet.redis.start()
    until_booked(fleet, before, answered(client, batch))
    assert "Traceback" not in fleet.replica.output, fleet.replica.output
