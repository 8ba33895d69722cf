"""`breakeven demo FILE.jsonl`: real prompts through the running endpoint, and what came of them, from the ledger."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import typer
from rich.console import Console
from rich.progress import BarColumn as Bar
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.address import running_url
from gateway.cli.demo.month import run_month
from gateway.cli.demo.summary import Summary, show, summarise
from gateway.cli.options import AsJson, http_url
from gateway.cli.state import open_state
from gateway.clock import now_us
from gateway.config.home import find_home
from gateway.errors import ConfigurationError, StateError
from gateway.instants import DAY_US
from gateway.routing.plans import SIMULATE_TAG
from gateway.stores import NewKey

TAGS = f"demo,{SIMULATE_TAG}"
BOOKING_SECONDS = 60.0
POLL_SECONDS = 0.5
MONTH_REQUESTS = 20_000
KEY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a prompt: the id of the answered request, or why it was not answered."""

    request_id: str | None = None
    problem: str | None = None


def command(
    file: Path | None = typer.Argument(None, help="JSON lines with `prompt` (text) or `messages`."),
    month: bool = typer.Option(
        False, "--month", help="Instead: make up a month of traffic in a separate database; calls no model."
    ),
    url: str | None = typer.Option(
        None, callback=http_url, help="The running gateway; where it was last started when left out."
    ),
    key: str = typer.Option("", envvar="BREAKEVEN_API_KEY", help="An app key; without one a key for a day is made."),
    limit: int = typer.Option(300, min=1, help="How many prompts to send."),
    concurrency: int = typer.Option(8, min=1, help="Requests at once."),
    max_tokens: int = typer.Option(48, min=1, help="Output limit of each request."),
    as_json: AsJson = False,
) -> None:
    """Send prompts with `model="auto"` and print where they went, what they cost and how fast they were.

    Without any provider key the hosted side is simulated at list prices, and every line that contains it says so.
    """
    if month == (file is not None):
        raise typer.BadParameter("give either a file of prompts or --month")
    if file is None:
        run_month(find_home(), requests=MONTH_REQUESTS, as_json=as_json)
        return
    prompts = load_prompts(file, limit)
    console = Console(stderr=as_json)
    summary = asyncio.run(_run(prompts, url or running_url(find_home()), key, concurrency, max_tokens, console))
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        show(summary, console)


def load_prompts(file: Path, limit: int) -> list[list[dict[str, Any]]]:
    """The messages of the first `limit` lines. Raises ConfigurationError naming the line that is wrong."""
    prompts: list[list[dict[str, Any]]] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", file=str(file)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("is not UTF-8 text", file=str(file)) from error
    for number, line in enumerate(lines, 1):
        if len(prompts) == limit:
            break
        if not line.strip():
            continue
        messages = _messages(line)
        if messages is None:
            raise ConfigurationError(
                "needs an object with `prompt` (a text) or `messages`", file=str(file), line=number
            )
        prompts.append(messages)
    if not prompts:
        raise ConfigurationError("holds no prompt", file=str(file))
    return prompts


def _messages(line: str) -> list[dict[str, Any]] | None:
    """None if there are none. The gateway validates what is in `messages`."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict):
        return None
    given = cast("dict[str, Any]", row)
    prompt = given.get("prompt")
    return given.get("messages") or ([{"role": "user", "content": prompt}] if isinstance(prompt, str) else None)


async def _run(
    prompts: Sequence[list[dict[str, Any]]], url: str, key: str, concurrency: int, max_tokens: int, console: Console
) -> Summary:
    async with _usable_key(key) as usable:
        headers = {b"authorization": f"Bearer {usable}".encode(), b"x-breakeven-tags": TAGS.encode()}
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=600, limits=limits, trust_env=False
        ) as client:
            await _require_gateway(client)
            sent = await send_all(client, prompts, concurrency, max_tokens, console)
            entries = await read_entries(client, [one.request_id for one in sent if one.request_id is not None])
    return summarise(len(prompts), [one.problem for one in sent if one.problem is not None], entries)


@asynccontextmanager
async def _usable_key(given: str) -> AsyncGenerator[str]:
    """The given key, or one made for a day on the machine that holds the state, and revoked when the block ends."""
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


async def _require_gateway(client: httpx.AsyncClient) -> None:
    """A key made a moment ago is known to the running gateway within a second. Raises StateError."""
    deadline = asyncio.get_running_loop().time() + KEY_SECONDS
    while True:
        try:
            answer = await client.get("/v1/models")
        except httpx.HTTPError as error:
            raise StateError(
                f"nothing answers at {client.base_url}; start it with `make serve` or `breakeven serve`"
            ) from error
        if answer.status_code == 200:
            return
        if answer.status_code != 401 or asyncio.get_running_loop().time() > deadline:
            raise StateError(f"the gateway refused: {answer.json()['error']['message']}")
        await asyncio.sleep(POLL_SECONDS)


async def send_all(
    client: httpx.AsyncClient,
    prompts: Sequence[list[dict[str, Any]]],
    concurrency: int,
    max_tokens: int,
    console: Console,
) -> list[Sent]:
    """Sends every prompt once, `concurrency` at a time; outcomes are in the order of the prompts."""
    gate = asyncio.Semaphore(concurrency)
    columns = (TextColumn("{task.description}"), Bar(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("prompts", total=len(prompts))

        async def one(messages: list[dict[str, Any]]) -> Sent:
            async with gate:
                try:
                    return await _send(client, messages, max_tokens)
                finally:
                    progress.advance(task)

        return await asyncio.gather(*(one(messages) for messages in prompts))


async def _send(client: httpx.AsyncClient, messages: list[dict[str, Any]], max_tokens: int) -> Sent:
    """The stream is read to its end."""
    body = {"model": "auto", "messages": messages, "max_tokens": max_tokens, "stream": True}
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return Sent(problem=f"{answer.status_code}: {_refusal(answer)}")
            async for _ in answer.aiter_bytes():
                pass
            return Sent(request_id=answer.headers["x-breakeven-request-id"])
    except httpx.HTTPError as error:
        return Sent(problem=f"the connection broke ({type(error).__name__})")


def _refusal(answer: httpx.Response) -> str:
    """The gateway's own sentence."""
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "without a reason"


async def read_entries(client: httpx.AsyncClient, ids: Iterable[str]) -> list[dict[str, Any]]:
    """Each request's ledger entry, waiting for those still on their way from the journal to the database.

    Fewer where the gateway takes longer than `BOOKING_SECONDS`, or stops.
    """
    waiting, found = list(ids), list[dict[str, Any]]()
    deadline = asyncio.get_running_loop().time() + BOOKING_SECONDS
    while waiting and asyncio.get_running_loop().time() < deadline:
        left: list[str] = []
        for request_id in waiting:
            try:
                answer = await client.get(f"/v1/requests/{request_id}")
            except httpx.HTTPError:
                return found
            if answer.status_code == 200:
                found.append(answer.json())
            else:
                left.append(request_id)
        waiting = left
        if waiting:
            await asyncio.sleep(POLL_SECONDS)
    return found
