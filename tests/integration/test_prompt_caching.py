"""The cost of a conversation with Claude through OpenAI's client, which sets no cache marks: without and with ours.

The provider is scripted, with a cache that reads, writes and charges as documented by Anthropic; the costs are the
ledger's, at Claude Sonnet 5.5's prices. docs/economics.md shows these figures.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam

from backends.anthropic import NATIVE_PATHS, AnthropicBackend
from backends.scripted import Outcome
from backends.translating import TranslatingBackend
from gateway.ledger.entry import Entry
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates
from gateway.routing.decide import decide
from gateway.routing.snapshot import CacheWrites, request_facts_of
from gateway.upstreams.warm_prefixes import PromptCache
from tests.builders import make_candidate, make_snapshot
from tests.integration.service import Service, client_of
from tests.live_server import serving
from tests.rig import KEY, Rig
from tests.scripted_provider import ScriptedProvider
from tests.scripted_provider.anthropic_cache import AnthropicCache

pytestmark = pytest.mark.integration
SONNET = Rates(
    input=2_000_000, output=10_000_000, cached_input=100_000, cache_write_5m=2_500_000, cache_write_1h=4_000_000
)
TURNS = 12
SYSTEM = {"role": "system", "content": "You work for the accounts department. " * 250}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks something up in the books. " * 10,
            "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
        },
    }
    for name in ("invoice", "customer", "payment", "order")
]


class Shop:
    """A gateway in front of Claude, and a clock for both caches."""

    def __init__(self, service: Service, provider: ScriptedProvider, cache: AnthropicCache, url: str) -> None:
        self.service, self.provider, self.cache, self.url = service, provider, cache, url

    async def ask(self, messages: list[Any], **body: Any) -> None:
        async with client_of(self.url) as client:
            await client.chat.completions.create(model="a", messages=messages, **body)

    @property
    def entries(self) -> list[Entry]:
        return self.service.rig.ledger.entries

    @property
    def dollars(self) -> float:
        return sum(entry.cost.total_pico_usd for entry in self.entries if entry.cost is not None) / 1e12

    def marks(self, number: int = -1) -> int:
        """The number of marks in a request as received by the provider."""
        return self.provider.received[number].body.count(b'"cache_control":{"type":"ephemeral"}')


@asynccontextmanager
async def shop(*, is_auto: bool, **rig_changes: Any) -> AsyncGenerator[Shop]:
    cache = AnthropicCache()
    service = Service(Rig(**rig_changes))
    pipeline = service.rig.pipeline
    writes = CacheWrites("gateway", cache.least_tokens) if is_auto else CacheWrites()
    prices = ModelPrices(Ladder(SONNET), 0, "test")
    pipeline.snapshot = make_snapshot(
        candidates=[make_candidate("a", backend="one", prices=prices, cache_writes=writes)]
    )
    pipeline.prompt_caches = {
        "one": PromptCache(
            least_tokens=cache.least_tokens,
            step_tokens=1,
            is_automatic=False,
            marks="auto" if is_auto else "callers",
        )
    }
    pipeline.marks_prompts = is_auto
    pipeline.monotonic = lambda: cache.now
    async with (
        ScriptedProvider(Outcome(), count=cache.usage) as provider,
        serving(service.app) as url,
    ):
        spoken = AnthropicBackend("one", provider.base_url, "sk")
        pipeline.backends = {"one": TranslatingBackend(spoken, native=NATIVE_PATHS)}
        yield Shop(service, provider, cache, url)
        await spoken.aclose()


def turn(number: int) -> list[dict[str, Any]]:
    """What an agent adds per turn: a tool call and its result, then an answer and the next question."""
    function = {"name": "invoice", "arguments": f'{{"id": "{number}"}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    if number % 2:
        result = f"Invoice {number}: " + "item, quantity, price; " * 60
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]
    return [
        {"role": "assistant", "content": f"That is settled, number {number}. " * 8},
        {"role": "user", "content": f"And what of number {number + 1}?"},
    ]


async def converse(at: Shop, *, first: str = "", seconds: float = 20.0, turns_tools: bool = False) -> None:
    """`first` precedes the system prompt, and may contain a placeholder for the turn's number; `turns_tools`: each turn
    has different tools."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "What of number 1?"}]
    for number in range(1, TURNS + 1):
        system = {"role": "system", "content": first.format(number) + SYSTEM["content"]}
        other = {"type": "function", "function": {"name": f"only_{number}"}}
        await at.ask([system, *said], tools=[other, *TOOLS] if turns_tools else TOOLS)
        said += turn(number)
        at.cache.now += seconds


def tokens(entries: list[Entry]) -> tuple[int, int, int]:
    """(input, read from the cache, written to it)."""
    return (
        sum(entry.input_tokens for entry in entries),
        sum(entry.cached_input_tokens for entry in entries),
        sum(entry.cache_write_5m_tokens for entry in entries),
    )


async def test_a_conversation_of_twelve_turns_with_tools_costs_a_quarter() -> None:
    async with shop(is_auto=False) as plain:
        await converse(plain)
    assert tokens(plain.entries) == (50_489, 0, 0)
    assert f"{plain.dollars:.6f}" == "0.105778"
    async with shop(is_auto=True) as marked:
        await converse(marked)
    assert tokens(marked.entries) == (50_489, 44_903, 5_586)
    assert f"{marked.dollars:.6f}" == "0.023255"
    assert [marked.marks(number) for number in range(TURNS)] == [3, *[4] * (TURNS - 1)]
    for entry in marked.entries:
        again = decide(request_facts_of(entry.intent), marked.service.rig.pipeline.snapshot)
        assert again.decision == entry.intent.decision


@pytest.mark.parametrize("changing", [{"first": "It is {:02}:00. "}, {"turns_tools": True}])
async def test_a_prompt_that_begins_anew_each_time_is_marked_once(changing: dict[str, Any]) -> None:
    """For example with the time of day in the system prompt, or with changing tools: every mark would cost a quarter of
    the prompt, and nothing would ever be read."""
    async with shop(is_auto=True) as at:
        await converse(at, **changing)
        assert [at.marks(number) for number in range(TURNS)] == [3, *[0] * (TURNS - 1)]
        assert tokens(at.entries)[1] == 0


async def test_a_conversation_that_pauses_longer_than_the_cache_lives_starts_again() -> None:
    async with shop(is_auto=True) as at:
        await converse(at, seconds=301.0)
        assert [at.marks(number) for number in range(TURNS)] == [3, *[0] * (TURNS - 1)]


async def test_calls_by_themselves_share_their_system_prompt_from_the_second_on() -> None:
    async with shop(is_auto=True) as at:
        for number in range(4):
            await at.ask([SYSTEM, {"role": "user", "content": f"Classify {number}."}])
        assert [at.marks(number) for number in range(4)] == [0, 1, 1, 1]
        first, second, third, fourth = at.entries
        assert (first.cache_write_5m_tokens, second.cached_input_tokens) == (0, 0)
        assert second.cache_write_5m_tokens == third.cached_input_tokens == fourth.cached_input_tokens > 2_000
        assert third.cache_write_5m_tokens == 0


async def test_what_a_caller_marked_and_what_is_too_short_goes_as_it_would_without() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    own = {"role": "user", "content": [{"type": "text", "text": "x" * 9_000, "cache_control": mark}]}
    native = {"model": "a", "max_tokens": 9, "system": SYSTEM["content"], "tools": [], "messages": [turn(2)[1]]}
    sent: list[list[bytes]] = []
    for is_auto in (False, True):
        async with shop(is_auto=is_auto) as at, openai.AsyncOpenAI(api_key=KEY, base_url=f"{at.url}/v1") as client:
            for _ in range(2):
                await at.ask([SYSTEM, own], tools=TOOLS)
                await at.ask([{"role": "user", "content": "hi"}], tools=TOOLS[:1])
                await client.post("/messages", body=native, cast_to=object)
            sent.append([one.body for one in at.provider.received])
    assert sent[0] == sent[1]


async def test_responses_are_marked_as_chats_are() -> None:
    async with shop(is_auto=True) as at, openai.AsyncOpenAI(api_key=KEY, base_url=f"{at.url}/v1") as client:
        schema: dict[str, object] = {"type": "object", "properties": {}}
        tool = FunctionToolParam(type="function", name="f", parameters=schema, strict=False)
        said: list[Any] = [{"role": "user", "content": "hello"}]
        for answer in ("one", "two"):
            instructions = SYSTEM["content"]
            await client.responses.create(model="a", instructions=instructions, input=said, tools=[tool], store=False)
            said += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and?"}]
        assert [at.marks(number) for number in range(2)] == [3, 4]
        assert at.entries[1].cached_input_tokens > 2_000
