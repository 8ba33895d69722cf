"""Fields of other engines: supported with the same meaning, or rejected by name; with a tiny model."""

import json
import re
from typing import Any

import httpx
import pytest
import torch

from backends.errors import Untranslatable, UpstreamRejected
from backends.http.errors import error_from_status
from backends.http_backend import where_another_may_do
from local_engine.assembly import Engine, assemble
from local_engine.config import EngineConfig
from local_engine.errors import InvalidRequest
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.sampling.guidance import GuidanceVocabulary
from local_engine.sampling.sampling_params import Constraint
from local_engine.server.openai_protocol import parse_chat
from local_engine.server.refused_fields import REFUSED_IN_CHAT
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import make_model, write_folder

END = 257
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0}
UNIQUE = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "array", "uniqueItems": True}}}},
}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 6, "temperature": 0, "logprobs": 0}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = write_folder(make_model("qwen2"), tmp_path_factory.mktemp("model"))
    turns = "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}{{ documents or '' }}"
    template = turns + "{% if add_generation_prompt %}>{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    return assemble(load_safetensors(folder), EngineConfig(kv_blocks=64, context_window=128, max_running_requests=4))


async def choice(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    """The only choice of a completion."""
    path, body = ("chat/completions", HI) if "messages" in changes else ("completions", TEXT)
    answer = await client.post(f"/v1/{path}", json=body | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


async def drawn(client: httpx.AsyncClient, **changes: Any) -> list[str]:
    return (await choice(client, **changes))["logprobs"]["tokens"]


async def tokens(client: httpx.AsyncClient, **body: Any) -> list[int]:
    answer = await client.post("/tokenize", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["tokens"]


async def prompt_tokens(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> int:
    answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("field", sorted(REFUSED_IN_CHAT))
def test_a_field_that_would_change_the_answer_is_refused_unless_it_says_nothing(field: str) -> None:
    neutral, _ = REFUSED_IN_CHAT[field]
    for value in (None, *neutral):
        parse_chat(json.dumps(HI | {field: value}).encode())
    with pytest.raises(InvalidRequest, match=field) as caught:
        parse_chat(json.dumps(HI | {field: "else"}).encode())
    assert caught.value.parameter == field


async def test_each_endpoint_refuses_its_own(client: httpx.AsyncClient) -> None:
    for path, body in (("chat/completions", HI), ("completions", TEXT)):
        answer = await client.post(f"/v1/{path}", json=body | {"mirostat": 2})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "mirostat")
    assert (await client.post("/v1/chat/completions", json=HI | {"echo": True})).status_code == 400
    assert (await choice(client, echo=True, logprobs=None))["text"].startswith("hi")


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [258]}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
        ({"allowed_token_ids": [5], "bad_words": ["a"]}, "allowed_token_ids"),
        ({"allowed_token_ids": [END], "min_tokens": 2}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
        ({"bad_words": ["a"] * 257}, "bad_words"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ],
)
async def test_values_that_leave_nothing_are_refused(
    client: httpx.AsyncClient, changes: dict[str, Any], parameter: str
) -> None:
    answer = await client.post("/v1/completions", json=TEXT | changes)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == parameter


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("chat/completions", {"n": 17}),
        ("chat/completions", {"stop": list("abcdefghijklmnopq")}),
        ("chat/completions", {"logit_bias": {"100000": 5}}),
        ("chat/completions", {"modalities": ["text", "audio"]}),
        ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "file"}]}]}),
        ("chat/completions", {"top_a": 0.5}),
        ("chat/completions", {"web_search_options": {}}),
        ("chat/completions", {"functions": [{"name": "f"}]}),
        ("chat/completions", {"tools": [UNIQUE], "tool_choice": "required"}),
        ("completions", {"suffix": "end"}),
        ("completions", {"best_of": 3}),
    ],
)
async def test_what_another_server_may_take_goes_on_to_one(
    client: httpx.AsyncClient, path: str, changes: dict[str, Any]
) -> None:
    """Through the gateway it was the caller's mistake, and no other model was asked."""
    answer = await client.post(f"/v1/{path}", json=(HI if path.startswith("chat") else TEXT) | changes)
    assert isinstance(as_the_gateway_reads(answer), Untranslatable), answer.text


async def test_what_is_wrong_anywhere_does_not(client: httpx.AsyncClient) -> None:
    for changes in ({"temperature": 9}, {"n": 0}, {"stop": [""]}, {"logit_bias": {"5": 101}}):
        answer = await client.post("/v1/chat/completions", json=HI | changes)
        assert not isinstance(as_the_gateway_reads(answer), Untranslatable), answer.text


def as_the_gateway_reads(answer: httpx.Response) -> UpstreamRejected:
    refusal = error_from_status(answer.status_code, {}, answer.content, backend="local")
    assert isinstance(refusal, UpstreamRejected)
    return where_another_may_do(refusal, answer.content, "m")


async def test_only_allowed_tokens_are_drawn(client: httpx.AsyncClient) -> None:
    [a, b] = await tokens(client, prompt="ab")
    for temperature in (0, 2):
        text = (await choice(client, allowed_token_ids=[a, b], temperature=temperature, max_tokens=30))["text"]
        assert set(text) <= {"a", "b"}
        assert len(text) == 30


async def test_allowed_tokens_and_a_constraint_hold_together(client: httpx.AsyncClient) -> None:
    a, b, c = await tokens(client, prompt="abc")
    kept = {"structured_outputs": {"regex": "[bcd]{3}[ae]"}, "temperature": 2, "max_tokens": 9}
    text = (await choice(client, allowed_token_ids=[a, b, c], **kept))["text"]
    assert re.fullmatch("[bc]{3}a", text)
    refused = await client.post("/v1/completions", json=TEXT | kept | {"allowed_token_ids": [b, c]})
    assert refused.status_code == 400
    assert "none of allowed_token_ids may follow" in refused.json()["error"]["message"]


async def test_an_end_that_a_constraint_says_is_no_text_however_few_its_tokens(client: httpx.AsyncClient) -> None:
    kept = {"structured_outputs": {"regex": "a{2,9}"}, "logit_bias": {str(END): 100}, "skip_special_tokens": False}
    one = await choice(client, min_tokens=6, max_tokens=9, **kept)
    assert (one["text"], one["finish_reason"]) == ("aa", "stop")


async def test_bad_words_never_appear(client: httpx.AsyncClient) -> None:
    """A word of one token, then the two most likely tokens, as one word of two tokens."""
    bias = {str(token): 100.0 for token in await tokens(client, prompt="xyz")}
    free = (await choice(client, logit_bias=bias, max_tokens=40))["text"]
    assert set(free) <= set("xyz")
    without = (await choice(client, logit_bias=bias, bad_words=[free[0]], max_tokens=40))["text"]
    assert free[0] not in without
    assert len(without) == 40
    pair = free[:2]
    apart = (await choice(client, logit_bias=bias, bad_words=[pair], max_tokens=40))["text"]
    assert apart[0] == free[0]
    assert pair not in apart
    assert len(apart) == 40


async def test_a_stop_string_may_stay(client: httpx.AsyncClient) -> None:
    plain = await choice(client, max_tokens=12)
    stop = plain["text"][4:6]
    without = await choice(client, max_tokens=12, stop=stop)
    within = await choice(client, max_tokens=12, stop=stop, include_stop_str_in_output=True)
    assert within["finish_reason"] == without["finish_reason"] == "stop"
    assert within["text"] == without["text"] + stop
    assert [one["stop_reason"] for one in (plain, without, within)] == [None, stop, stop]


async def test_a_stop_string_ends_no_answer_before_its_least_tokens(client: httpx.AsyncClient) -> None:
    plain = (await choice(client, max_tokens=12, logit_bias={str(END): -100}))["text"]
    one = await choice(client, max_tokens=12, min_tokens=12, stop=plain[4:6], logit_bias={str(END): -100})
    assert (one["text"], one["finish_reason"]) == (plain, "length")


async def test_a_stream_says_which_stop_string_ended_it(client: httpx.AsyncClient) -> None:
    stop = (await choice(client, max_tokens=12))["text"][4:6]
    body = TEXT | {"max_tokens": 12, "stop": ["never drawn", stop], "stream": True}
    answer = await client.post("/v1/completions", json=body)
    *parts, last = [json.loads(line[6:])["choices"][0] for line in answer.text.split("\n\n")[:-2]]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", stop)
    assert all("stop_reason" not in part for part in parts)


async def test_the_end_is_shown_to_who_asks(client: httpx.AsyncClient) -> None:
    ends = {"logit_bias": {str(END): 100}, "max_tokens": 3}
    assert (await choice(client, **ends))["text"] == ""
    shown = await choice(client, **ends, skip_special_tokens=False, include_stop_str_in_output=True)
    assert (shown["text"], shown["finish_reason"]) == ("</s>", "stop")
    passed = await choice(client, **ends, skip_special_tokens=False, ignore_eos=True)
    assert (passed["text"], passed["finish_reason"]) == ("</s>" * 3, "length")


async def test_prompts_are_cut_from_their_beginning(client: httpx.AsyncClient) -> None:
    long = "abcdefgh" * 30
    assert (await client.post("/v1/completions", json=TEXT | {"prompt": long})).status_code == 400
    assert await drawn(client, prompt=long, truncate_prompt_tokens=8) == await drawn(client, prompt="abcdefgh")
    body = TEXT | {"prompt": long, "truncate_prompt_tokens": -1, "max_tokens": 28}
    assert await prompt_tokens(client, "completions", body) == 100
    chat = {"messages": [{"role": "user", "content": long}], "truncate_prompt_tokens": -1, "temperature": 0}
    assert await prompt_tokens(client, "chat/completions", chat) == 127


async def test_templates_are_told_what_the_request_says(client: httpx.AsyncClient) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    start, end = await tokens(client, prompt="<s></s>")
    a, b, turn = await tokens(client, prompt="ab>")
    for changes, ids in [
        ({}, [start, a, end, start, b, end, turn]),
        ({"add_generation_prompt": False}, [start, a, end, start, b, end]),
        ({"continue_final_message": True}, [start, a, end, start, b]),
    ]:
        assert await tokens(client, messages=messages, **changes) == ids
        body = HI | {"messages": messages} | changes
        assert await prompt_tokens(client, "chat/completions", body) == len(ids)
        continued = await choice(client, messages=messages, **changes)
        answer = await choice(client, prompt=ids, logprobs=None)
        assert continued["message"]["content"] == answer["text"]
    both = {"add_generation_prompt": True, "continue_final_message": True}
    refused = await client.post("/v1/chat/completions", json=HI | both)
    assert refused.json()["error"]["param"] == "continue_final_message"
    read = await prompt_tokens(client, "chat/completions", HI | {"documents": [{"text": "d"}]})
    assert read == 1 + 2 + 1 + len("[{'text': 'd'}]") + 1


async def test_every_chunk_may_say_the_usage_so_far(client: httpx.AsyncClient) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = await client.post("/v1/chat/completions", json=HI | {"stream": True, "stream_options": options, "n": 2})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    events = [json.loads(line) for line in lines[:-1]]
    final = events.pop()["usage"]
    assert (final["prompt_tokens"], final["completion_tokens"]) == (5, 12)
    for index in (0, 1):
        told = [event["usage"] for event in events if event["choices"][0]["index"] == index]
        counts = [one["completion_tokens"] for one in told]
        assert counts == sorted(counts)
        assert (counts[0], counts[-1]) == (0, 6)
        assert all(one["total_tokens"] == one["prompt_tokens"] + one["completion_tokens"] for one in told)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"regex": "xy{3}"}, "xyyy"),
        ({"ebnf": 'root ::= "yes"'}, "yes"),
        ({"json_schema": '{"const": 7}'}, "7"),
    ],
)
async def test_sglangs_names_for_constraints(client: httpx.AsyncClient, changes: dict[str, Any], text: str) -> None:
    assert (await choice(client, **changes, max_tokens=20))["text"] == text


async def test_any_of_the_models_ends_ends_a_constrained_answer(engine: Engine) -> None:
    """The grammar library knows one end token; a model that prefers another would never stop."""

    fast = engine.tokenizer.fast
    two = Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[257, 256])
    matcher = GuidanceVocabulary(two, 258).matcher(Constraint("regex", "a+"))
    assert matcher.mask(torch.zeros(260)).isfinite().nonzero().flatten().tolist() == fast.encode("a").ids
    matcher.consume(fast.encode("a").ids[0])
    assert matcher.mask(torch.zeros(260)).isfinite().nonzero().flatten().tolist() == [*fast.encode("a").ids, 256, 257]
    matcher.consume(257)
    assert matcher.is_complete
