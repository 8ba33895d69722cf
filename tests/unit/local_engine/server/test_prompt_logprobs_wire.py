"""`echo` with `logprobs`, and `prompt_logprobs`, as requested by evaluation harnesses, with a tiny model."""

import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.loading.vocabulary import build_gguf_tokenizer
from local_engine.text.text_offsets import TextOffsets
from tests.unit.local_engine.loading.sentence_pieces import FIRST_PIECE, SENTENCE_PIECE
from tests.unit.local_engine.tiny_models import make_model, write_folder

WINDOW = 64
TEXT = "naïve 😀!"
"""Each byte is a token: two for ï, four for the face."""
OFFSETS = [0, 1, 2, 2, 3, 4, 5, 6, 6, 6, 6, 7]
START, END = 256, 257


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = write_folder(make_model("qwen2"), tmp_path_factory.mktemp("model"))
    config = EngineConfig(kv_blocks=64, context_window=WINDOW, max_running_requests=4, max_tokens_per_step=5)
    return assemble(load_safetensors(folder), config)


async def complete(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    body = {"prompt": TEXT, "max_tokens": 1, "temperature": 0} | changes
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def scored(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """The log-probabilities of the only choice, with its prompt echoed."""
    [choice] = (await complete(client, echo=True, **{"logprobs": 1} | changes))["choices"]
    return choice["logprobs"]


async def test_an_echo_tells_the_prompts_tokens_then_the_answers(client: httpx.AsyncClient) -> None:
    body = await complete(client, echo=True, logprobs=2, max_tokens=3)
    [choice] = body["choices"]
    told = choice["logprobs"]
    assert {len(values) for values in told.values()} == {len(OFFSETS) + 3}
    assert (told["token_logprobs"][0], told["top_logprobs"][0]) == (None, None)
    assert told["text_offset"][: len(OFFSETS)] == OFFSETS
    assert told["text_offset"][len(OFFSETS)] == len(TEXT)
    assert choice["text"].startswith(TEXT)
    for token, logprob, top in list(zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True))[1:]:
        assert logprob <= max(top.values()) <= 0
        assert token in top
        assert 1 <= len(top) <= 3
    assert body["usage"]["completion_tokens"] == 3
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_none_drawn_is_the_prompt_alone(client: httpx.AsyncClient) -> None:
    one = await scored(client)
    body = await complete(client, echo=True, logprobs=1, max_tokens=0)
    [choice] = body["choices"]
    assert choice["text"] == TEXT
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] == {name: values[:-1] for name, values in one.items()}
    assert body["usage"] == body["usage"] | {"prompt_tokens": len(OFFSETS), "completion_tokens": 0}
    assert body["x_breakeven"]["gpu_seconds"] > 0
    assert body["x_breakeven"]["time_to_first_token_seconds"] is None
    assert (await complete(client, echo=True, max_tokens=0))["choices"][0]["text"] == TEXT


async def test_with_none_to_draw_a_prompt_may_fill_the_window(client: httpx.AsyncClient) -> None:
    assert len((await scored(client, prompt=[65] * WINDOW, max_tokens=0))["tokens"]) == WINDOW
    body = {"prompt": [65] * WINDOW, "echo": True, "logprobs": 1, "max_tokens": 1}
    assert (await client.post("/v1/completions", json=body)).status_code == 400


async def test_several_prompts_in_texts_or_ids_are_told_as_alone(client: httpx.AsyncClient) -> None:
    texts = [TEXT, "hello", "hello there"]
    alone = [await scored(client, prompt=text) for text in texts]
    ids = [(await client.post("/tokenize", json={"prompt": text})).json()["tokens"] for text in texts]
    for prompts in (texts, ids):
        choices = (await complete(client, prompt=prompts, echo=True, logprobs=1, n=2))["choices"]
        for choice, wanted in zip(choices, [one for one in alone for _ in (1, 2)], strict=True):
            told = choice["logprobs"]
            assert (told["tokens"], told["text_offset"]) == (wanted["tokens"], wanted["text_offset"])
            assert told["token_logprobs"][1:] == pytest.approx(wanted["token_logprobs"][1:], abs=1e-4)


async def test_a_stream_tells_the_same(client: httpx.AsyncClient) -> None:
    for max_tokens in (0, 3):
        asked: dict[str, Any] = {"echo": True, "logprobs": 1, "max_tokens": max_tokens, "n": 2}
        whole = await complete(client, **asked)
        answer = await client.post("/v1/completions", json={"prompt": TEXT, "temperature": 0, "stream": True} | asked)
        events = [json.loads(line[6:])["choices"][0] for line in answer.text.split("\n\n")[:-2]]
        for index, choice in enumerate(whole["choices"]):
            own = [event for event in events if event["index"] == index]
            assert "".join(event["text"] for event in own) == choice["text"]
            parts = [event["logprobs"] for event in own if event["logprobs"]]
            told = {name: [value for part in parts for value in part[name]] for name in choice["logprobs"]}
            assert [told[name] for name in ("tokens", "text_offset")] == [
                choice["logprobs"][name] for name in ("tokens", "text_offset")
            ]
            for name in ("token_logprobs", "top_logprobs"):
                assert told[name][0] is choice["logprobs"][name][0] is None
            assert told["token_logprobs"][1:] == pytest.approx(choice["logprobs"]["token_logprobs"][1:], abs=1e-4)
            for ours, theirs in zip(told["top_logprobs"][1:], choice["logprobs"]["top_logprobs"][1:], strict=True):
                assert ours == pytest.approx(theirs, abs=1e-4)


async def test_vllms_prompt_logprobs_on_both_endpoints(client: httpx.AsyncClient) -> None:
    echoed = await scored(client)
    [choice] = (await complete(client, prompt_logprobs=2))["choices"]
    assert choice["logprobs"] is None
    assert choice["prompt_logprobs"][0] is None
    ids = (await client.post("/tokenize", json={"prompt": TEXT})).json()["tokens"]
    for token, logprob, entry in zip(
        ids[1:], echoed["token_logprobs"][1:], choice["prompt_logprobs"][1:], strict=False
    ):
        assert entry[str(token)]["logprob"] == pytest.approx(logprob, abs=1e-4)
        assert entry[str(token)]["rank"] >= 1
        by_rank = sorted(entry.values(), key=lambda told: told["rank"])
        assert [told["rank"] for told in by_rank[:2]] == [1, 2]
        assert all(a["logprob"] >= b["logprob"] for a, b in pairwise(by_rank))
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "max_tokens": 0, "prompt_logprobs": 0}
    chat = (await client.post("/v1/chat/completions", json=body)).json()
    ids = (await client.post("/tokenize", json={"messages": messages})).json()["tokens"]
    assert [None if told is None else list(told) for told in chat["prompt_logprobs"]] == [
        None, *([str(token)] for token in ids[1:]),
    ]  # fmt: skip
    assert chat["choices"][0]["message"]["content"] == ""
    assert "prompt_logprobs" not in (await complete(client))["choices"][0]


async def test_special_tokens_take_no_room_in_the_text_unless_they_are_shown(client: httpx.AsyncClient) -> None:
    ids = [START, 65, END, 66]
    hidden = await scored(client, prompt=ids)
    assert hidden["text_offset"] == [0, 0, 1, 1, 2]
    [choice] = (await complete(client, prompt=ids, echo=True, logprobs=0, skip_special_tokens=False))["choices"]
    assert choice["logprobs"]["text_offset"] == [0, 3, 4, 8, 9]
    assert choice["text"].startswith("<s>")


async def test_a_prompt_that_was_cut_tells_its_last_tokens(client: httpx.AsyncClient) -> None:
    told = await scored(client, truncate_prompt_tokens=3, max_tokens=0)
    assert told["text_offset"] == OFFSETS[-3:]
    assert told["token_logprobs"][0] is None


def test_text_that_its_tokens_spell_otherwise_keeps_its_own_offsets() -> None:
    """SentencePiece adds a blank and a BOS that are not in the text."""
    tokenizer = build_gguf_tokenizer(SENTENCE_PIECE)
    ids, offsets = tokenizer.encode_with_offsets("abc té")
    assert ids == tokenizer.encode("abc té")
    assert tokenizer.decode(ids) == " abc té"
    assert offsets == [0, 0, 0, 3, 5, 5]


@pytest.mark.parametrize(
    ("pieces", "offsets"),
    [
        ([0xC3, 0xA9, 0x41], [0, 0, 1]),
        ([0xF0, 0x9F, 0x41, 0x42], [0, 0, 1, 2]),
        ([0xF0, 0xF0, 0x9F, 0x98, 0x80, 0x41], [0, 1, 1, 1, 1, 2]),
        ([0x80, 0x41], [0, 1]),
    ],
)
def test_bytes_that_are_no_text_count_as_what_stands_for_them(pieces: list[int], offsets: list[int]) -> None:
    tokenizer = build_gguf_tokenizer(SENTENCE_PIECE)
    ids = [FIRST_PIECE - 256 + byte for byte in pieces]
    along = TextOffsets(tokenizer, at=7)
    assert [along.push(token) - 7 for token in ids] == offsets
    text = tokenizer.decode(ids)
    assert [text[at] for at, byte in zip(offsets, pieces, strict=True) if byte < 0x80] == [
        chr(byte) for byte in pieces if byte < 0x80
    ]
