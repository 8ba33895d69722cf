"""What `breakeven demo` says of prompts that nobody answered, and of lines that hold none."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.demo import Sent, load_prompts, read_entries, send_all
from gateway.cli.demo.summary import Summary, Tier, percentile, show
from gateway.errors import ConfigurationError

TOO_LONG = "This prompt is about 9,000 tokens long. [Shorten] it."


def answer(request: httpx.Request) -> httpx.Response:
    text = json.loads(request.content)["messages"][0]["content"]
    if text == "long":
        return httpx.Response(400, json={"error": {"message": TOO_LONG}})
    if text == "odd":
        return httpx.Response(502, text="<html>")
    if text == "gone":
        raise httpx.ReadError("reset")
    return httpx.Response(200, headers={"x-breakeven-request-id": f"id of {text}"}, text="data: [DONE]")


def prompt(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def test_every_prompt_that_failed_says_why() -> None:
    console = Console(file=io.StringIO())
    async with httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(answer)) as client:
        sent = await send_all(client, [prompt(text) for text in ("hello", "long", "odd", "gone")], 2, 8, console)
    assert sent == [
        Sent(request_id="id of hello"),
        Sent(problem=f"400: {TOO_LONG}"),
        Sent(problem="502: without a reason"),
        Sent(problem="the connection broke (ReadError)"),
    ]


def test_the_reasons_are_shown_with_how_often() -> None:
    console = Console(file=(shown := io.StringIO()), width=200)
    show(Summary(4, 3, {f"400: {TOO_LONG}": 2, "502: without a reason": 1}, 1, "0", [], []), console)
    said = f"4 sent, 3 failed, 1 ledger entry.\n- 2 failed with 400: {TOO_LONG}\n- 1 failed with 502"
    assert said in shown.getvalue()


@pytest.mark.parametrize(("simulated", "said"), [((True,), "all"), ((True, False), "part"), ((False,), None)])
def test_how_much_of_the_cost_is_simulated_is_said(simulated: tuple[bool, ...], said: str | None) -> None:
    console = Console(file=(shown := io.StringIO()), width=200)
    tiers = [Tier("m", one, 1, 1, 0, 1, "0.5", 0, None, None, None) for one in simulated]
    show(Summary(1, 0, {}, 1, "0.5", tiers, []), console)
    assert f"Cost of this run: $0.5{f' ({said} of it simulated)' if said else ''}\n" in shown.getvalue()


async def test_a_gateway_that_stops_before_all_is_booked_leaves_what_is_known() -> None:
    def booked(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("second"):
            raise httpx.ConnectError("All connection attempts failed")
        return httpx.Response(200, json={"id": "first"})

    async with httpx.AsyncClient(base_url="http://gateway", transport=httpx.MockTransport(booked)) as client:
        assert await read_entries(client, ["first", "second"]) == [{"id": "first"}]
    console = Console(file=(shown := io.StringIO()), width=200)
    show(Summary(3, 1, {"502: without a reason": 1}, 1, "0", [], []), console)
    assert "- 1 answered but not booked yet" in shown.getvalue()


@pytest.mark.parametrize("line", ['{"prompt": null}', '{"prompt": ["hi"]}', '{"text": "hi"}', "[]", "hi"])
def test_a_line_without_a_prompt_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "hi"}}\n{line}\n')
    assert load_prompts(file, limit=1) == [prompt("hi")]
    with pytest.raises(ConfigurationError, match=r"prompts\.jsonl:2: needs an object with `prompt`"):
        load_prompts(file, limit=2)


def test_a_percentile_is_the_value_of_its_rank() -> None:
    assert [percentile(range(1, count + 1), 0.5) for count in (1, 2, 6, 7)] == [1, 1, 3, 4]
    assert percentile(range(1, 101), 0.95) == 95
    assert percentile([], 0.5) is None


@pytest.mark.parametrize("words", [[], ["prompts.jsonl", "--month"]])
def test_it_needs_prompts_or_a_month_and_not_both(words: list[str]) -> None:
    """A file beside --month was ignored."""
    result = CliRunner().invoke(build("demo"), ["demo", *words])
    assert result.exit_code == 2
    assert "give either a file of prompts or --month" in result.output
