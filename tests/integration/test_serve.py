"""`breakeven serve` as a user runs it: a child process, the real engine with real weights, the official client."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from gateway.config.engine_curve import CurveFile, save_engine_curve
from tests.ports import free_port
from tests.waiting import PATIENCE_SECONDS, wait_until
from tests.weights import fetch_weights

pytestmark = [pytest.mark.integration, pytest.mark.engine]
LONG_PROMPT = "Here is a report about the harvest of the year, field by field. " * 60


class Served:
    """A running `breakeven serve`, whose output is read continuously."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--port", str(self.port), "--no-ui"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**_clean_environment(), "BREAKEVEN_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.output or self.process.poll() is not None)
        assert text in self.output, self.output

    @property
    def app_key(self) -> str:
        found = re.search(r"app key.*(bk-\S+)", self.output)
        assert found, self.output
        return found[1]

    def engine(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children(recursive=True)
        return next(child for child in children if "local_engine" in child.cmdline())

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def rows(self, query: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(f"file:{self.home}/breakeven.db?mode=ro", uri=True)) as connection:
            return connection.execute(query).fetchall()


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("serve") / "home"
    (home / "models").mkdir(parents=True)
    weights = fetch_weights()
    os.symlink(weights, home / "models" / weights.name)
    save_engine_curve(home / "throughput-curve.json", CurveFile("test", 300.0, [(1, 20.0), (2, 30.0), (4, 40.0)]))
    return home


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[Served]:
    running = Served(home)
    try:
        running.wait_for("Ready.")
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key=served.app_key, base_url=f"{served.url}/v1", max_retries=0, timeout=PATIENCE_SECONDS
    ) as made:
        yield made


def test_the_official_client_gets_real_text(client: openai.OpenAI, served: Served) -> None:
    wait_until(lambda: _is_shipped(served))
    [(before,)] = served.rows("select count(*) from entries")
    answer = client.chat.completions.create(
        model="auto",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=12,
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    stream = client.chat.completions.create(
        model="auto",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=12,
        stream=True,
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == answer.choices[0].message.content
    wait_until(lambda: served.rows("select count(*) from entries") == [(before + 2,)])
    costs = served.rows("select compute_pico_usd, gpu_us from entries order by accepted_at_us desc limit 2")
    per_microsecond = 10**11 / 3600 / 10**6  # $0.10 an hour
    assert all(abs(cost - gpu_us * per_microsecond) <= 1 for cost, gpu_us in costs)


def test_the_first_rules_let_json_schemas_through_and_say_where_tools_come_from(client: openai.OpenAI) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"capital": {"type": "string"}},
        "required": ["capital"],
    }
    answer = client.chat.completions.create(
        model="auto",
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
        max_tokens=40,
        response_format={"type": "json_schema", "json_schema": {"name": "capital", "schema": schema}},
    )
    assert json.loads(answer.choices[0].message.content or "").keys() == {"capital"}
    with pytest.raises(openai.BadRequestError, match=r"does not support tools.*`supports` of your own models"):
        client.chat.completions.create(
            model="auto",
            messages=[{"role": "user", "content": "What is the weather in Paris?"}],
            tools=[{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
        )


def test_a_repeated_prefix_is_cached(client: openai.OpenAI, served: Served) -> None:
    """The second prompt computes a tenth of the first one's tokens, and the ledger has both first-token times."""

    def ask() -> Any:
        return client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": LONG_PROMPT}], max_tokens=2, temperature=0
        )

    first, second = ask().usage, ask().usage
    cached = second.prompt_tokens_details.cached_tokens
    assert cached > 0.8 * first.prompt_tokens
    assert first.prompt_tokens_details.cached_tokens < 0.1 * first.prompt_tokens
    wait_until(lambda: len(long_entries(served, first.prompt_tokens)) == 2)
    for cached_tokens, first_token_us in long_entries(served, first.prompt_tokens):
        assert cached_tokens in (first.prompt_tokens_details.cached_tokens, cached)
        assert first_token_us > 0


def long_entries(served: Served, input_tokens: int) -> list[Any]:
    query = "select cached_input_tokens, time_to_first_token_us from entries where input_tokens = "
    return served.rows(query + str(input_tokens))


def test_killing_the_engine_mid_stream_is_an_error_event_a_partial_entry_and_a_restart(
    client: openai.OpenAI, served: Served
) -> None:
    never_ends = {"0": -100, "2": -100}  # the two tokens that end this model's answers
    stream = client.chat.completions.create(
        model="auto",
        messages=[{"role": "user", "content": "Tell me a very long story."}],
        max_tokens=2000,
        logit_bias=never_ends,
        stream=True,
    )
    for number, _ in enumerate(stream):
        if number == 3:
            break
    engine = served.engine()
    engine.kill()
    with pytest.raises(openai.APIError, match="broke off"):
        for _ in stream:
            pass
    partial = "select count(*) from entries join dimensions on dimensions.id = dimension_id where status = 'partial'"
    wait_until(lambda: served.rows(partial) == [(1,)])
    wait_until(lambda: _has_new_engine(served, engine.pid) and _is_ready(served))

    def answers() -> bool:
        try:
            return bool(
                client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "Hi"}], max_tokens=2)
            )
        except openai.APIStatusError:
            return False  # the circuit breaker waits a moment before it probes

    wait_until(answers)


def _has_new_engine(served: Served, old_pid: int) -> bool:
    try:
        return served.engine().pid != old_pid
    except (StopIteration, psutil.Error):
        return False  # there is none between its death and its restart


def _is_ready(served: Served) -> bool:
    try:
        return httpx.get(f"{served.url}/readyz", timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.HTTPError:
        return False


def test_bad_requests_are_told_what_is_wrong_and_not_booked(client: openai.OpenAI, served: Served) -> None:
    wait_until(lambda: _is_shipped(served))
    before = served.rows("select count(*) from entries")
    with pytest.raises(openai.BadRequestError, match="takes 8,192") as caught:
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "word " * 20_000}])
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.APIStatusError) as large:
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "x" * 50_000_000}])
    assert large.value.status_code == 413
    wait_until(lambda: _is_shipped(served))
    assert served.rows("select count(*) from entries") == before


def _is_shipped(served: Served) -> bool:
    text = httpx.get(f"{served.url}/metrics", timeout=PATIENCE_SECONDS).text
    return "breakeven_ledger_unshipped_entries 0.0" in text and "breakeven_ledger_open_intents 0.0" in text


def _refused(home: Path) -> str:
    """The output of a start that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve"],
        env={**_clean_environment(), "BREAKEVEN_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "breakeven.yaml").write_text(f"server: {{port: {port}}}\n", "utf-8")
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in _refused(tmp_path)


def test_it_stops_in_order_and_a_second_start_makes_no_new_keys(home: Path, served: Served) -> None:
    """The last test with this instance."""
    engine, key = served.engine(), served.app_key
    assert served.stop() == 0
    assert served.output.rstrip().endswith("Stopped.")
    assert not engine.is_running()
    file = home / "breakeven.yaml"
    file.write_text(file.read_text().replace("is_enabled: true", "is_enabled: false"))  # keys need no engine
    second = Served(home)
    second.wait_for("Ready.")
    assert "bk-" not in second.output
    listed = httpx.get(f"{second.url}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE_SECONDS)
    assert listed.status_code == 200
    assert second.stop() == 0
