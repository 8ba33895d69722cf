"""kill -9 while a batch is under way: it resumes where it was, and no line is missing or answered twice."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import openai
import pytest

from tests.faults.fleet.replica import Replica
from tests.scripted_provider.process import ProviderProcess, provider_process
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
COUNT, KILLS = 60, 2
AT_ONCE = 8
ANSWERED_A_SECOND = 20  # an answer takes 0.4 s
CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends: {{provider: {{base_url: {provider}, provider: openai}}}}
"""


@pytest.fixture
def provider() -> Iterator[ProviderProcess]:
    with provider_process("--first-delay", "0.4", "--before-hold", f"{ANSWERED_A_SECOND}") as process:
        yield process


def test_a_killed_gateway_goes_on_with_its_batch(provider: ProviderProcess, tmp_path: Path) -> None:
    home = tmp_path / "home"
    database = f"sqlite+aiosqlite:///{home}/breakeven.db"
    gateway = Replica(home, provider=provider.url, database=database, redis="", workers=1, configuration=CONFIGURATION)
    gateway.start()
    gateway.wait_until_ready()
    key = gateway.owner_key()
    lines = [
        {
            "custom_id": f"{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "auto", "messages": [{"role": "user", "content": f"hello {number}"}]},
        }
        for number in range(COUNT)
    ]
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=5) as client:
        provider.hold()  # so that the batch cannot end, however late this test sees the count
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")

        def completed() -> int:
            said = client.batches.retrieve(batch.id).request_counts
            return 0 if said is None else said.completed

        for number in range(1, KILLS + 1):
            wait_until(lambda: completed() >= 15 * number, "lines are answered")  # noqa: B023 - used at once
            gateway.kill()
            with closing(sqlite3.connect(home / "breakeven.db")) as stored:
                assert list(stored.execute("SELECT status FROM batches")) == [("in_progress",)]
            provider.hold()
            gateway.start()
            gateway.wait_until_ready()
        provider.go_on()
        wait_until(lambda: client.batches.retrieve(batch.id).status == "completed", "the batch is done")
        done = client.batches.retrieve(batch.id)
        assert done.request_counts is not None
        assert done.output_file_id is not None
        assert (done.request_counts.completed, done.request_counts.failed) == (COUNT, 0)
        answers = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    gateway.terminate()
    assert gateway.wait() == 0

    assert [one["custom_id"] for one in answers] == [f"{number}" for number in range(COUNT)]
    with closing(sqlite3.connect(home / "breakeven.db")) as books:
        booked = {number.hex() for (number,) in books.execute("SELECT request_id FROM entries")}
    assert {one["response"]["request_id"] for one in answers} <= booked
    # What was under way at each kill, or answered in the second before, is asked again.
    assert COUNT <= len(booked) <= COUNT + KILLS * (AT_ONCE + ANSWERED_A_SECOND)
