"""What an OpenAI-compatible provider is sent: the bytes of the caller's body, except for necessary changes."""

import json
import re

import pytest
from msgspec.structs import replace

from backends.dialects import DIALECTS, Dialect, dialect_of
from backends.errors import UpstreamRejected
from backends.formats.openai_request import build_body
from backends.protocol import Call, Operation


def make_call(
    body: bytes, *, stream: bool = False, operation: Operation = "chat.completions", salt: str | None = None
) -> Call:
    return Call(operation, "up/model-1", body, stream, "r-1", cache_salt=salt)


BODIES: list[tuple[Call, bytes]] = [
    (make_call(b'{"model":"auto","n": 1.0}'), b'{"model":"up/model-1","n": 1.0}'),
    (make_call(b'{"messages":[]}'), b'{"messages":[],"model":"up/model-1"}'),
    (
        make_call(b'{"model":"a","response_format":{"type":"json_object","value":{"type":"object"}}}'),
        b'{"model":"up/model-1","response_format":{"type":"json_schema","json_schema":'
        b'{"name":"answer","schema":{"type":"object"}}}}',
    ),
    (
        make_call(b'{"model":"a","response_format":{"type":"json_object", "schema":{"const":"value"}}}'),
        b'{"model":"up/model-1","response_format":{"type":"json_object", "schema":{"const":"value"}}}',
    ),
    (
        make_call(b'{"model":"a","response_format":{"type":"regex", "value":"[a-z]"}}'),
        b'{"model":"up/model-1","response_format":{"type":"regex", "value":"[a-z]"}}',
    ),
    (
        make_call(b'{ "model" : "auto" , "stream":true}', stream=True),
        b'{ "model" : "up/model-1" , "stream":true,"stream_options":{"include_usage":true}}',
    ),
    (
        make_call(b'{"model":"a","stream_options":{"include_usage":false,"x":[1, 2]}}', stream=True),
        b'{"model":"up/model-1","stream_options":{"include_usage":true,"x":[1, 2]}}',
    ),
    (
        make_call(b'{"model":"a","stream_options":{"include_usage":false,"continuous_usage_stats":true}}', stream=True),
        b'{"model":"up/model-1","stream_options":{"include_usage":true}}',
    ),
    (
        make_call(b'{"model":"a","stream_options":{"continuous_usage_stats":true,"include_usage":true}}', stream=True),
        b'{"model":"up/model-1","stream_options":{"continuous_usage_stats":true,"include_usage":true}}',
    ),
    (
        make_call(b'{"model":"a","stream_options":{"x":1}}', stream=True),
        b'{"model":"up/model-1","stream_options":{"x":1,"include_usage":true}}',
    ),
    (
        make_call(b'{"model":"a","stream_options":null}', stream=True),
        b'{"model":"up/model-1","stream_options":{"include_usage":true}}',
    ),
    (make_call(b'{"model":"a"}', stream=True, operation="embeddings"), b'{"model":"up/model-1"}'),
    (make_call(b'{"model":"a"}', salt='t"1'), b'{"model":"up/model-1","cache_salt":"t\\"1"}'),
    (make_call(b'{"model":"a","cache_salt":"theirs"}', salt="ours"), b'{"model":"up/model-1","cache_salt":"ours"}'),
    (make_call(b'{"model":"a","cache_salt":"theirs","x":1}'), b'{"model":"up/model-1","x":1}'),
    (
        make_call(b'{"model":"a","priority": -3,"x":1}', salt="ours"),
        b'{"model":"up/model-1","x":1,"cache_salt":"ours"}',
    ),
    (
        make_call(b'{"model":"a","priority": 3}', salt="ours"),
        b'{"model":"up/model-1","priority": 3,"cache_salt":"ours"}',
    ),
    (make_call(b'{"model":"a","priority": -3}'), b'{"model":"up/model-1","priority": -3}'),
    (make_call(b'{"model":"a","tool_choice":"any"}'), b'{"model":"up/model-1","tool_choice":"required"}'),
]


@pytest.mark.parametrize(("call", "expected"), BODIES)
def test_bodies(call: Call, expected: bytes) -> None:
    assert build_body(call) == expected


DIALECT = Dialect(
    renames={"max_tokens": "max_completion_tokens"},
    lacks=frozenset({"user", "stream_options"}),
    message_lacks=frozenset({"reasoning_content"}),
    call_lacks=frozenset({"extra_content"}),
    asks_for_usage=False,
)
IN_DIALECT: list[tuple[bytes, bytes]] = [
    (b'{"model":"a","max_tokens":5}', b'{"model":"up/model-1","max_completion_tokens":5}'),
    (b'{"max_tokens":5,"max_completion_tokens":6}', b'{"max_completion_tokens":6,"model":"up/model-1"}'),
    (b'{"model":"a","max_completion_tokens":6}', b'{"model":"up/model-1","max_completion_tokens":6}'),
    (b'{"model":"a"}', b'{"model":"up/model-1"}'),
    (b'{"model":"a","user":"u","x": 1}', b'{"model":"up/model-1","x": 1}'),
    (b'{"model":"a","stream_options":{"include_usage":true}}', b'{"model":"up/model-1"}'),
    (
        b'{"messages":[{"role":"assistant","reasoning_content":"hm","content":"a\\u0062"}],"model":"a"}',
        b'{"messages":[{"role":"assistant","content":"a\\u0062"}],"model":"up/model-1"}',
    ),
    (
        b'{"messages": [{"role": "user", "content": "\\"reasoning_content\\""}],"model":"a"}',
        b'{"messages": [{"role": "user", "content": "\\"reasoning_content\\""}],"model":"up/model-1"}',
    ),
    (
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":"c","extra_content":{"google":{}},"function":{ }}]}]}',
        b'{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{ }}]}],"model":"up/model-1"}',
    ),
    (
        b'{"messages":[ {"extra_content":1,"tool_calls":[{"x": {"extra_content":1}}]},{"tool_calls":7}],"model":"a"}',
        b'{"messages":[ {"extra_content":1,"tool_calls":[{"x": {"extra_content":1}}]},{"tool_calls":7}],'
        b'"model":"up/model-1"}',
    ),
    (
        b'{"messages":[{"tool_calls":"extra_content"}],"model":"a"}',
        b'{"messages":[{"tool_calls":"extra_content"}],"model":"up/model-1"}',
    ),
    (b'{"messages":"extra_content","model":"a"}', b'{"messages":"extra_content","model":"up/model-1"}'),
    (b'{"messages":{"reasoning_content":1},"model":"a"}', b'{"messages":{"reasoning_content":1},"model":"up/model-1"}'),
]


@pytest.mark.parametrize(("body", "expected"), IN_DIALECT)
@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_is_asked_in_its_dialect(body: bytes, expected: bytes, stream: bool) -> None:
    assert build_body(make_call(body, stream=stream), DIALECT) == expected


@pytest.mark.parametrize("provider", ["cerebras", "fireworks", "gemini", "groq", "mistral", "openai"])
def test_the_usage_that_openrouters_clients_ask_for_is_no_field_elsewhere(provider: str) -> None:
    body = b'{"model":"a","usage":{"include":true}}'
    assert build_body(make_call(body), DIALECTS[provider]) == b'{"model":"up/model-1"}'
    assert b'"usage"' in build_body(make_call(body), DIALECTS["openrouter"])


@pytest.mark.parametrize(
    ("asked", "told"),
    [('"priority"', b',"service_tier":"auto"'), ('"fast"', b',"service_tier":"auto"'), ('"auto"', b""), ("null", b"")],
)
def test_mistrals_priority_is_its_auto(asked: str, told: bytes) -> None:
    """docs.mistral.ai/inference/priority-tier: what is left out is standard. Everybody's default, `auto`, would cost
    1.75 times as much there."""
    body = f'{{"model":"a","service_tier":{asked}}}'.encode()
    assert build_body(make_call(body), DIALECTS["mistral"]) == b'{"model":"up/model-1"%b}' % told
    embeddings = replace(make_call(body), operation="embeddings")
    assert build_body(embeddings, DIALECTS["mistral"]) == b'{"model":"up/model-1"}'


def test_what_a_dialect_removes_stays_removed_whatever_else_would_change_in_it() -> None:
    removed = frozenset({"messages", "response_format", "tools"})
    strict = Dialect(lacks=removed, refuses_cache_marks=True, needs_thoughts=True)
    body = (
        b'{"messages":[{"role":"user","content":"hi","cache_control":{}}],"model":"a","tools":[{"cache_control":{}}],'
        b'"response_format":{"type":"json_object","value":{"type":"object"}}}'
    )
    assert build_body(make_call(body), strict) == b'{"model":"up/model-1"}'
    renaming = Dialect(renames={"tools": "functions"}, refuses_cache_marks=True)
    assert json.loads(build_body(make_call(body), renaming)).keys() == {
        "messages",
        "model",
        "functions",
        "response_format",
    }


@pytest.mark.parametrize(
    ("provider", "theirs", "ours"),
    [
        ("zai", "max_completion_tokens", "max_tokens"),
        ("snowflake", "max_tokens", "max_completion_tokens"),
    ],
)
def test_a_limit_beside_a_null_of_the_other_name_is_told(provider: str, theirs: str, ours: str) -> None:
    body = json.dumps({"model": "a", theirs: 60, ours: None}).encode()
    assert json.loads(build_body(make_call(body), DIALECTS[provider])) == {"model": "up/model-1", ours: 60}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"model":"a","model":"b"}', b'{"model":"a","stream_options":[]}'])
def test_a_body_that_is_no_object_is_the_callers_fault(body: bytes) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        build_body(make_call(body, stream=True))
    assert caught.value.status == 400
    assert json.loads(caught.value.body)["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("name", ["Model", "MODEL", "\\u004dodel", "\u017ftream", "max_to\u212aens", "N", "Cache_Salt"])
def test_a_name_that_other_servers_take_for_one_we_decide_on_is_refused(name: str) -> None:
    with pytest.raises(UpstreamRejected, match="by some servers and not by others; write") as caught:
        build_body(make_call(b'{"model":"a","%b":"expensive"}' % name.encode()))
    assert caught.value.status == 400


def test_other_names_may_be_written_as_their_server_likes() -> None:
    body = b'{"model":"a","topK":1,"Models":[],"chatTemplate":"x"}'
    assert build_body(make_call(body)) == body.replace(b'"a"', b'"up/model-1"')


def test_xai_is_not_asked_to_keep_an_answer_for_later() -> None:
    body = b'{"model":"a","deferred":true}'
    assert json.loads(build_body(make_call(body), DIALECTS["xai"])) == {"model": "up/model-1"}


def test_openrouter_is_not_told_of_other_models_than_the_one_that_was_decided_on() -> None:
    body = b'{"model":"a","models":["dear"],"route":"fallback","preset":"p","provider":{"sort":"price"}}'
    assert json.loads(build_body(make_call(body), DIALECTS["openrouter"])) == {
        "model": "up/model-1",
        "provider": {"sort": "price"},
    }


MARK = b'"cache_control":{"type":"ephemeral"}'
MARKED = (
    b'{"model":"a","messages":[{"role":"system","content":"say \\"cache_control\\"",' + MARK + b"},"
    b'{"role":"user","content":[{"type":"text","text":"hi",' + MARK + b"}]},"
    b'{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},'
    + MARK
    + b"}]}],"
    b'"tools":[{"type":"function","function":{"name":"f"},' + MARK + b"}]}"
)


@pytest.mark.parametrize("provider", [name for name, dialect in DIALECTS.items() if dialect.refuses_cache_marks])
def test_cache_marks_are_kept_from_those_who_refuse_them(provider: str) -> None:
    assert build_body(make_call(MARKED), DIALECTS[provider]) == MARKED.replace(b"," + MARK, b"").replace(
        b'"model":"a"', b'"model":"up/model-1"'
    )
    unmarked = MARKED.replace(b"," + MARK, b"").replace(b":[", b": [")
    assert build_body(make_call(unmarked), DIALECTS[provider]) == unmarked.replace(b'"a"', b'"up/model-1"')


def test_cache_marks_stay_for_all_others_and_in_what_is_no_chat() -> None:
    said = MARKED.replace(b'"model":"a"', b'"model":"up/model-1"')
    assert build_body(make_call(MARKED), DIALECTS["openrouter"]) == build_body(make_call(MARKED)) == said
    assert build_body(make_call(MARKED, operation="responses"), DIALECTS["openai"]) == said
    for odd in (b'"x"', b'[1,"cache_control"]', b'{"cache_control":1}'):
        body = b'{"model":"up/model-1","messages":' + odd + b"}"
        assert build_body(make_call(body), DIALECTS["openai"]) == body


def test_a_call_that_another_model_made_gets_an_id_that_mistral_takes() -> None:
    call = '{"id":"call_0123456789abcdef","function":{"name":"f","arguments":"{}"},"type":"function","extra_content":1}'
    result = '{"role":"tool","tool_call_id":"call_0123456789abcdef","content":"1"}'
    body = f'{{"model":"a","messages":[{{"role":"assistant","tool_calls":[{call}]}},{result}]}}'.encode()
    [asked, answered] = json.loads(build_body(make_call(body), DIALECTS["mistral"]))["messages"]
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", answered["tool_call_id"])
    assert "extra_content" not in asked["tool_calls"][0]
    assert build_body(make_call(body), DIALECTS["openai"]) == body.replace(b'"a"', b'"up/model-1"', 1)


TOLD_BY_DEVELOPER = (
    b'{"model":"a","messages":[ {"role":"developer","content":"Be brief: \\"developer\\""},'
    b'{"content":"\\u0061","role": "user"}]}'
)


def test_a_developers_message_is_the_systems_for_whoever_does_not_know_its_role() -> None:
    for provider in ("openai", "groq", "cerebras"):
        expected = TOLD_BY_DEVELOPER.replace(b'"a"', b'"up/model-1"', 1)
        assert build_body(make_call(TOLD_BY_DEVELOPER), DIALECTS[provider]) == expected
    for dialect in (DIALECTS["deepseek"], DIALECTS["mistral"], DIALECTS["together"], DIALECTS["xai"], Dialect()):
        assert build_body(make_call(TOLD_BY_DEVELOPER), dialect) == (
            b'{"model":"up/model-1","messages":[{"role":"system","content":"Be brief: \\"developer\\""},'
            b'{"content":"\\u0061","role":"user"}]}'
        )


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [{"role": "user", "content": "developer", "name": "developer"}],"model":"up/model-1"}',
        b'{"messages": ["developer"],"model":"up/model-1"}',
        b'{"messages": {"role":"developer"},"model":"up/model-1"}',
    ],
)
def test_nothing_else_that_is_called_developer_changes(body: bytes) -> None:
    assert build_body(make_call(body)) == body


@pytest.mark.parametrize("provider", ["deepseek", "mistral", "ollama", "together", "zai", "snowflake"])
def test_a_limit_has_the_name_that_its_provider_reads(provider: str) -> None:
    read = "max_completion_tokens" if provider == "snowflake" else "max_tokens"
    for asked in ("max_tokens", "max_completion_tokens"):
        told = build_body(make_call(b'{"model":"a","%s":6}' % asked.encode()), dialect_of(provider))
        assert json.loads(told) == {"model": "up/model-1", read: 6}


@pytest.mark.parametrize(
    ("provider", "asked", "told"),
    [
        ("groq", "max", "high"),
        ("groq", "minimal", "low"),
        ("cerebras", "xhigh", "high"),
        ("gemini", "max", "high"),
        ("gemini", "minimal", "minimal"),
        ("groq", "default", "default"),
        ("openai", "max", "max"),
        ("deepseek", "max", "max"),
    ],
)
def test_an_effort_that_a_provider_refuses_is_the_nearest_that_it_takes(provider: str, asked: str, told: str) -> None:
    body = b'{"model":"a","reasoning_effort": "%b"}' % asked.encode()
    assert json.loads(build_body(make_call(body), DIALECTS[provider]))["reasoning_effort"] == told


def test_an_effort_that_is_no_text_is_its_providers_to_refuse() -> None:
    for odd in (b"null", b"3", b'"x\xff"', b"{}"):
        body = b'{"model":"up/model-1","reasoning_effort":' + odd + b"}"
        for provider in ("groq", "openai"):
            assert build_body(make_call(body), DIALECTS[provider]) == body


@pytest.mark.parametrize(("provider", "signs"), [("gemini", True), ("openai", False), ("fireworks", False)])
def test_only_gemini_is_told_signatures_of_calls(provider: str, *, signs: bool) -> None:
    call = b'{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}'
    body = b'{"model":"a","messages":[{"role":"assistant","tool_calls":[%b]}]}' % call
    assert (b"thought_signature" in build_body(make_call(body), DIALECTS[provider])) == signs


def test_xai_is_told_the_names_of_users_alone() -> None:
    """Multi-agent frameworks add each agent's name to its answers, which xAI rejects."""
    body = (
        b'{"messages":[{"role":"system","content":"x","name":"s"},{"role":"user","content":"\\u0061","name":"u"},'
        b'{"role":"assistant","content":"y","name":"a"}],"model":"up/model-1"}'
    )
    expected = body.replace(b',"name":"s"', b"").replace(b',"name":"a"', b"")
    assert build_body(make_call(body), DIALECTS["xai"]) == expected
    for same in (
        b'{"messages": [{"role":"user","content":"hi","name":"u"}],"model":"up/model-1"}',
        b'{"messages": "name","model":"up/model-1"}',
        b'{"messages": ["name"],"model":"up/model-1"}',
    ):
        assert build_body(make_call(same), DIALECTS["xai"]) == same
    assert build_body(make_call(body), DIALECTS["together"]) == body


@pytest.mark.parametrize(("provider", "told"), [("xai", {"top_p": 1}), ("moonshot", {})])
def test_models_that_think_are_told_no_penalties(provider: str, told: dict[str, int]) -> None:
    """Copilot's command line sends both as 0 in each request."""
    body = b'{"model":"a","frequency_penalty":0,"presence_penalty":0.5,"top_p":1}'
    call, dialect = make_call(body), DIALECTS[provider]
    assert json.loads(build_body(replace(call, reasons=True), dialect)) == {"model": "up/model-1"} | told
    assert build_body(call, dialect) == body.replace(b'"a"', b'"up/model-1"')


@pytest.mark.parametrize("provider", ["cerebras", "fireworks", "groq", "mistral"])
def test_an_answer_that_openai_or_a_translation_gave_goes_on_where_unknown_members_are_refused(provider: str) -> None:
    """Clients send back the whole message, including null members."""
    answer = '{"role":"assistant","content":"a","refusal":null,"annotations":[],"audio":null,"reasoning_details":[]}'
    body = f'{{"model":"a","messages":[{{"role":"user","content":"hi"}},{answer}]}}'.encode()
    messages = json.loads(build_body(make_call(body), DIALECTS[provider]))["messages"]
    assert messages[1] == {"role": "assistant", "content": "a"}


def test_gemini_is_told_no_penalties() -> None:
    body = b'{"model":"a","frequency_penalty":0,"presence_penalty":0.5,"seed":1}'
    assert json.loads(build_body(make_call(body), DIALECTS["gemini"])) == {"model": "up/model-1", "seed": 1}
