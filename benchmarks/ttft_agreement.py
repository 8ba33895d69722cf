"""Time to first token as a client sees it and as the ledger records it, for the same requests; and as guidellm does.

    python -m benchmarks.ttft_agreement [--json] [--save] [--requests 200] [--concurrency 4] [--guidellm PATH]

The provider waits 200 ms before its first word. The client is OpenAI's own; its time runs from the call to the first
chunk with text, and is paired with the ledger's for that request. `--guidellm` is the command of an installed guidellm,
which needs torch (the CPU build will do) and so a venv of its own:

    python -m venv .venv-guidellm
    .venv-guidellm/bin/pip install --no-deps -r benchmarks/guidellm_constraints.txt
    python -m benchmarks.ttft_agreement --json --save --guidellm .venv-guidellm/bin/guidellm
"""

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from benchmarks.report import Bar, build_report, options, publish

FIRST_WORD_SECONDS = 0.2
ENTRIES_SECONDS = 30.0
MOST_RELATIVE_DIFFERENCE = 0.05
WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Running:
    """The gateway under measurement."""

    url: str
    key: str
    owner_key: str
    model: str


@contextlib.contextmanager
def running_gateway() -> Generator[Running]:
    command = [sys.executable, "-m", "tests.clients.service", "--first-word", str(FIRST_WORD_SECONDS), "--word", "0.01"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        said = json.loads(service.stdout.readline())
        yield Running(said["url"], said["key"], said["owner_key"], said["model"])
        service.stdin.close()
        service.wait(60)


async def ask(client: openai.AsyncOpenAI, model: str) -> tuple[str, float]:
    """(request id, seconds to the first text)."""
    began = time.perf_counter()
    raw = await client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": "What is the capital of France?"}], stream=True
    )
    first: float | None = None
    async for chunk in raw.parse():
        if first is None and chunk.choices and chunk.choices[0].delta.content:
            first = time.perf_counter() - began
    assert first is not None
    return raw.headers["x-breakeven-request-id"], first


async def measure(gateway: Running, requests: int, concurrency: int) -> dict[str, float]:
    """Seconds by request id, as the client measured them."""
    slots = asyncio.Semaphore(concurrency)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key) as client:

        async def one() -> tuple[str, float]:
            async with slots:
                return await ask(client, gateway.model)

        for _ in range(WARM_UP):
            await one()
        return dict(await asyncio.gather(*(one() for _ in range(requests))))


def ledger_seconds(gateway: Running, at_least: int) -> dict[str, float]:
    """Seconds by request id, from the ledger, once `at_least` so many have reached the database."""
    headers = {"authorization": f"Bearer {gateway.owner_key}"}
    deadline = time.monotonic() + ENTRIES_SECONDS
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=30) as client:
        while True:
            found: dict[str, float] = {}
            query: dict[str, str | int] = {"limit": 200}
            while True:
                page = client.get("/admin/v1/entries", params=query).raise_for_status().json()
                for entry in page["entries"]:
                    if entry["time_to_first_token_seconds"] is not None:
                        found[entry["request_id"]] = entry["time_to_first_token_seconds"]
                if page["next_before"] is None:
                    break
                query["before"] = page["next_before"]
            if len(found) >= at_least or time.monotonic() > deadline:
                return found
            time.sleep(0.2)


def write_tokenizer(folder: Path) -> None:
    """One token per byte. guidellm needs a tokenizer for its prompts, and would otherwise download one."""
    folder.mkdir()
    vocabulary = {letter: place for place, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')


def measure_guidellm(command: str, gateway: Running, requests: int, concurrency: int) -> dict[str, Any]:
    """guidellm's own summary of the time to first token, in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer, report = Path(folder, "tokenizer"), Path(folder, "report.json")
        write_tokenizer(tokenizer)
        backend = f"kind=openai_http,target={gateway.url},model={gateway.model},api_key={gateway.key}"
        options = {
            "--backend": f"{backend},validate_backend=false,http2=false",
            "--profile": f"kind=concurrent,streams={concurrency}",
            "--constraint": f"kind=max_requests,count={requests}",
            "--tokenizer": f"kind=huggingface_auto,model={tokenizer}",
            "--data": "kind=synthetic_text,prompt_tokens=20,output_tokens=8",
            "--output": f"kind=json,path={report}",
        }
        flat = [part for option in options.items() for part in option]
        subprocess.run([command, "run", *flat, "--disable-console"], check=True, stdout=sys.stderr)
        [benchmark] = json.loads(report.read_text())["benchmarks"]
    found = benchmark["metrics"]["time_to_first_token_ms"]["successful"]
    percentiles = {name: found["percentiles"][name] / 1000 for name in ("p50", "p90", "p99")}
    return {"requests": found["count"], "avg": found["mean"] / 1000, **percentiles}


def compare(client: dict[str, float], ledger: dict[str, float]) -> dict[str, Any]:
    """Statistics of the requests that both have."""
    pairs = [(seconds, ledger[request_id]) for request_id, seconds in client.items() if request_id in ledger]
    apart = sorted(seen - booked for seen, booked in pairs)
    return {
        "requests": len(client),
        "in_the_ledger": len(pairs),
        "client_p50_seconds": statistics.median(seen for seen, _ in pairs),
        "ledger_p50_seconds": statistics.median(booked for _, booked in pairs),
        "client_less_ledger_p50_seconds": statistics.median(apart),
        "client_less_ledger_p99_seconds": apart[min(len(apart) - 1, round(len(apart) * 0.99))],
        "client_less_ledger_least_seconds": apart[0],
    }


def run(requests: int, concurrency: int, guidellm: str | None) -> dict[str, Any]:
    with running_gateway() as gateway:
        seen = asyncio.run(measure(gateway, requests, concurrency))
        booked = ledger_seconds(gateway, requests + WARM_UP)
        results: dict[str, Any] = {"openai": compare(seen, booked)}
        difference = abs(results["openai"]["client_less_ledger_p50_seconds"]) / results["openai"]["client_p50_seconds"]
        bars = [
            Bar("requests the ledger has a first-token time of", results["openai"]["in_the_ledger"], requests, "least"),
            Bar("median difference / client's median", round(difference, 4), MOST_RELATIVE_DIFFERENCE, "most"),
        ]
        if guidellm is not None:
            theirs = measure_guidellm(guidellm, gateway, requests, concurrency)
            later = ledger_seconds(gateway, len(booked) + requests)
            ours = statistics.median(later[request_id] for request_id in later.keys() - booked.keys())
            results["guidellm"] = {**theirs, "ledger_p50_seconds": ours}
            relative = abs(theirs["p50"] - ours) / theirs["p50"]
            bars += [
                Bar("requests that guidellm saw answered", theirs["requests"], requests, "least"),
                Bar("guidellm's median from the ledger's", round(relative, 4), MOST_RELATIVE_DIFFERENCE, "most"),
            ]
    return build_report("ttft_agreement", results, bars)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--guidellm", metavar="PATH", help="the command of an installed guidellm")
    given = parser.parse_args()
    report = run(given.requests, given.concurrency, given.guidellm)
    held = (
        f"{bar['what']}: {bar['value']} ({bar['bar']}) {'holds' if bar['holds'] else 'FAILS'}" for bar in report["bars"]
    )
    publish(report, given, "\n".join(held))


if __name__ == "__main__":
    main()
