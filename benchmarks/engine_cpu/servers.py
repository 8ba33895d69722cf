"""Servers with the same model, each in its own process, asked over HTTP by as many clients as they have slots.

Ours and llama.cpp's `llama-server`, with the file or a requantised copy, the same threads, and prompts without a common
prefix.
"""

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from benchmarks.engine_cpu.sizes import SEQUENCES, Measure, Sizes, random_prompt

START_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 600.0
# Greedy answers of full length; `cache_prompt` is llama-server's, which needs it off per request as well.
ASKED: Final[dict[str, Any]] = {"temperature": 0.0, "ignore_eos": True, "cache_prompt": False}


class Server:
    """A Contender. Close it: the process holds the model."""

    measures: tuple[Measure, ...] = ("served",)

    def __init__(self, name: str, command: list[str], port: int, sizes: Sizes) -> None:
        self.name = name
        self._sizes, self._seed, self._port = sizes, 20_000, port
        self._child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._await_health()
            self._answer_all(1, 16)
        except BaseException:
            self._child.kill()
            raise

    def measure(self, what: Measure) -> float:
        """Output tokens per second of all clients together, their prompts included."""
        assert what == "served"
        seconds = self._answer_all(SEQUENCES, self._sizes.prompt)
        return SEQUENCES * self._sizes.output / seconds

    def _answer_all(self, clients: int, prompt: int) -> float:
        """Seconds from the first request to the last answer; raises RuntimeError for an answer of another length."""
        self._seed += clients
        prompts = [random_prompt(self._seed + i, prompt) for i in range(clients)]
        with httpx.Client(timeout=ANSWER_SECONDS, base_url=f"http://127.0.0.1:{self._port}") as client:

            def ask(ids: list[int]) -> int:
                body = ASKED | {"prompt": ids, "max_tokens": self._sizes.output}
                answer = client.post("/v1/completions", json=body).raise_for_status()
                return int(answer.json()["usage"]["completion_tokens"])

            with ThreadPoolExecutor(clients) as pool:
                began = time.perf_counter()
                lengths = list(pool.map(ask, prompts))
                seconds = time.perf_counter() - began
        if set(lengths) != {self._sizes.output}:
            raise RuntimeError(f"{self.name} answered {lengths} tokens instead of {self._sizes.output} each")
        return seconds

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self._child.returncode} while it started")
            try:
                if httpx.get(f"http://127.0.0.1:{self._port}/health", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} was not ready after {START_SECONDS} s")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.terminate()
        try:
            self._child.wait(30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def our_server(model: Path, weights: str, sizes: Sizes) -> Server:
    """`python -m local_engine serve`, with a slot for every client."""
    port = free_port()
    command = [sys.executable, "-m", "local_engine", "serve", "--model", str(model), "--weights", weights]
    command += ["--port", str(port), "--threads", str(sizes.threads), "--max-concurrency", str(SEQUENCES)]
    command += ["--context-window", str(window(sizes)), "--no-prefix-cache"]
    return Server(f"our server {weights}", command, port, sizes)


def llama_server(binary: Path, name: str, model: Path, sizes: Sizes, *, flash_attention: str) -> Server:
    """llama-server with a slot for every client, continuous batching, and no cache of prompts."""
    port = free_port()
    command = [str(binary), "--model", str(model), "--host", "127.0.0.1", "--port", str(port)]
    command += ["--threads", str(sizes.threads), "--threads-batch", str(sizes.threads), "--parallel", str(SEQUENCES)]
    command += ["--ctx-size", str(SEQUENCES * window(sizes)), "--cont-batching", "--flash-attn", flash_attention]
    command += ["--no-cache-prompt", "--cache-ram", "0"]
    return Server(f"llama-server {name}, flash attention {flash_attention}", command, port, sizes)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def window(sizes: Sizes) -> int:
    return sizes.prompt + sizes.output + 64
