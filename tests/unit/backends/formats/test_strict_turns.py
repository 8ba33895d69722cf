"""Chats in the order that models' templates take."""

import msgspec
import pytest

from backends.formats.call_ids import with_distinct_ids
from backends.formats.image_types import with_true_types
from backends.formats.past_thinking import with_every_thought
from backends.formats.strict_turns import (
    alternating,
    mend_for,
    mended,
    with_a_user,
    with_mistrals_ids,
    with_plain_texts,
    with_readable_calls,
    with_system_first,
    with_text_results,
    without_system,
)
from backends.formats.tool_turns import with_answers
from backends.formats.unfinished_turns import with_every_result

Json = dict[str, object]

RULES: Json = {"role": "system", "content": "Be brief."}
MORE: Json = {"role": "developer", "content": "Be kind."}
LATE: Json = {"role": "system", "content": "Speak French."}
HI: Json = {"role": "user", "content": "Hi"}
SAID: Json = {"role": "assistant", "content": "Hello"}
CALLED: Json = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}
RESULT: Json = {"role": "tool", "tool_call_id": "c", "content": "7"}
ANSWER: Json = {"role": "assistant", "content": "OK."}
PICTURE: Json = {"type": "image_url", "image_url": {"url": "https://x.example/p.png"}}


def text(said: str) -> Json:
    return {"type": "text", "text": said}


def user(said: str | list[Json]) -> Json:
    return {"role": "user", "content": said}


BOTH: Json = {"role": "system", "content": "Be brief.\n\nBe kind."}
FRENCH_THEN_HI = user("<system>\nSpeak French.\n</system>\n\nHi")
IN_FRENCH = user("<system>\nSpeak French.\n</system>")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([RULES, MORE, HI], [BOTH, HI]),
        ([RULES, HI, SAID, LATE, HI], [RULES, HI, SAID, IN_FRENCH, HI]),
        ([HI, LATE], [HI, IN_FRENCH]),
        ([HI, CALLED, LATE, RESULT, SAID], [HI, CALLED, RESULT, IN_FRENCH, SAID]),
        (
            [RULES, {**MORE, "content": [text("Be kind.")]}],
            [{**RULES, "content": [text("Be brief."), text("Be kind.")]}],
        ),
        (
            [HI, {**LATE, "content": [text("Speak French.")]}],
            [HI, user([text("<system>\n"), text("Speak French."), text("\n</system>")])],
        ),
        ([MORE, {"role": "system", "content": None}], [{"role": "system", "content": [text("Be kind.")]}]),
    ],
)
def test_one_system_message_comes_first(messages: list[Json], expected: list[Json]) -> None:
    said = with_system_first(msgspec.json.encode(messages))
    assert msgspec.json.decode(said) == expected
    assert msgspec.json.decode(with_system_first(said)) == expected


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([RULES, HI, HI, SAID, HI], [RULES, user("Hi\n\nHi"), SAID, HI]),
        ([RULES, HI, SAID, LATE, HI], [RULES, HI, SAID, FRENCH_THEN_HI]),
        ([HI, user([PICTURE])], [user([text("Hi"), PICTURE])]),
        ([HI, CALLED, RESULT, HI], [HI, CALLED, RESULT, ANSWER, HI]),
        (
            [HI, CALLED, RESULT, LATE, HI],
            [HI, CALLED, RESULT, ANSWER, FRENCH_THEN_HI],
        ),
        ([HI, SAID, {**SAID, "content": [text("Well?")]}], [HI, {**SAID, "content": [text("Hello"), text("Well?")]}]),
        ([HI, SAID, CALLED, RESULT, SAID, SAID], [HI, SAID, CALLED, RESULT, {**SAID, "content": "Hello\n\nHello"}]),
        ([RULES, SAID, HI], [RULES, user("Go on."), SAID, HI]),
        ([CALLED, RESULT, SAID], [CALLED, RESULT, SAID]),
    ],
)
def test_turns_alternate(messages: list[Json], expected: list[Json]) -> None:
    said = alternating(msgspec.json.encode(messages))
    assert msgspec.json.decode(said) == expected
    assert alternating(said) == said


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([RULES, MORE, HI, SAID, HI], [user("Be brief.\n\nBe kind.\n\nHi"), SAID, HI]),
        ([RULES, SAID], [user("Be brief."), SAID]),
        ([HI], [HI]),
    ],
)
def test_the_user_says_it_where_there_is_no_system(messages: list[Json], expected: list[Json]) -> None:
    assert msgspec.json.decode(without_system(msgspec.json.encode(messages))) == expected


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([RULES], [user("Be brief.")]),
        ([RULES, LATE], [RULES, user("Speak French.")]),
        ([RULES, CALLED, RESULT], [RULES, user("Go on."), CALLED, RESULT]),
    ],
)
def test_somebody_asks(messages: list[Json], expected: list[Json]) -> None:
    assert msgspec.json.decode(with_a_user(msgspec.json.encode(messages))) == expected


@pytest.mark.parametrize(
    ("results", "told"),
    [
        ([[text("7"), text("8"), PICTURE]], [{**RESULT, "content": "7\n8"}, user([PICTURE])]),
        (
            [[PICTURE], "9"],
            [{**RESULT, "content": "See the next message."}, {**RESULT, "content": "9"}, user([PICTURE])],
        ),
        ([[text("7")]], [RESULT]),
        ([[]], [{**RESULT, "content": ""}]),
        (["7"], [RESULT]),
    ],
)
@pytest.mark.parametrize("after", [[], [SAID, HI]])
def test_a_tools_picture_is_shown_by_the_user(results: list[object], told: list[Json], after: list[Json]) -> None:
    asked = [HI, CALLED, *({**RESULT, "content": result} for result in results), *after]
    said = with_text_results(msgspec.json.encode(asked))
    assert msgspec.json.decode(said) == [HI, CALLED, *told, *after]
    assert with_text_results(said) == said


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({**RULES, "content": [text("Be"), text("brief.")]}, [{**RULES, "content": "Be\nbrief."}]),
        (user([text("Hi"), PICTURE]), [user([text("Hi"), PICTURE])]),
        (user([]), [user([])]),
        ({**RESULT, "content": [text("7")]}, [RESULT]),
        (CALLED, [{**CALLED, "content": ""}]),
        ({**CALLED, "content": None}, [{**CALLED, "content": ""}]),
        (HI, [HI]),
    ],
)
def test_lists_of_texts_are_texts(message: Json, told: list[Json]) -> None:
    assert msgspec.json.decode(with_plain_texts(msgspec.json.encode([message]))) == told


@pytest.mark.parametrize("arguments", ['{"a": "cut o', "", "[1]", '"text"'])
def test_a_call_cut_off_has_no_arguments(arguments: str) -> None:
    def chat(first: object) -> bytes:
        functions = [{"name": "f", "arguments": told} for told in (first, "{}")]
        calls = [{"id": "c", "function": function} for function in functions]
        return msgspec.json.encode([HI, {"role": "assistant", "tool_calls": calls}, RESULT, HI])

    assert with_readable_calls(chat(arguments)) == chat("{}")
    for kept in ('{"a": 1.50}', {"a": 1}):
        assert with_readable_calls(chat(kept)) == chat(kept)


@pytest.mark.parametrize("messages", ['[{"role": "user", "content": "Hi"}]', "[]", "7", '{"role": "system"}'])
def test_what_is_in_order_keeps_its_bytes(messages: str) -> None:
    raw = messages.encode()
    assert with_system_first(raw) == alternating(raw) == with_a_user(raw) == raw


def test_what_cannot_be_read_is_left_to_its_provider() -> None:
    body = b'{"messages":[{"role":"system","content":7},{"role":"system","content":"b"}]}'
    assert mended(body, (with_system_first,)) == body


LLAMA_CPP = "While executing FilterExpression at line 120, column 73 in source:\n... tool_call.arguments|items ..."
"""How llama.cpp 0.7.0 begins what its own Jinja says."""
WORDS = [
    ("System message must be at the beginning.", with_system_first),
    ("Chat template error: System message must be at the beginning.", with_system_first),
    ("Error: Jinja Exception: System message must be at the beginning.", with_system_first),
    ("invalid params, invalid chat setting (2013)", with_system_first),
    ("invalid params, chat content has invalid message role: system (2013)", with_system_first),
    ("Unexpected role 'system' after role 'user'", with_system_first),
    ("Only user, assistant and tool roles are supported, got system.", with_system_first),
    ("Unexpected role 'user' after role 'tool'", with_answers),
    ("After the optional system message, conversation roles must alternate user and assistant roles", alternating),
    ("Conversation roles must alternate user/assistant/user/assistant/...", alternating),
    ("After the (optional) system message(s), user and assistant roles should be alternating.", alternating),
    ("user or tool message(s) should alternate with assistant message(s).", alternating),
    ("System role not supported", without_system),
    ("Developer instruction is not enabled for models/gemma-3-27b-it", without_system),
    ("Expecting ',' delimiter: line 1 column 54 (char 53)", with_readable_calls),
    ("Unterminated string starting at: line 1 column 1121 (char 1120)", with_readable_calls),
    ("Invalid \\escape: line 1 column 7 (char 6)", with_readable_calls),
    ("'str object' has no attribute 'items'", with_readable_calls),
    ("Failed to parse tool call arguments as JSON: [json.exception.parse_error.101]", with_readable_calls),
    ("invalid params, invalid function arguments json string, tool_call_id: c (2013)", with_readable_calls),
    ('The "function.arguments" parameter of the code model must be in JSON format.', with_readable_calls),
    ("Invalid 'messages[2]'. ... but this message with role 'tool' contains an image URL.", with_text_results),
    (
        "for 'role:system' the following must be satisfied[('messages.0.content' : value must be a string)]",
        with_plain_texts,
    ),
    ("Failed to deserialize the JSON body: messages[1]: invalid type: sequence, expected a string", with_plain_texts),
    ("Unable to tokenize message ...: Invalid 'content' type. Expected one of: ['str'], got list.", with_plain_texts),
    ("AiError: Bad input: ... Type mismatch of '/messages/0/content', 'array' not in 'string', ...", with_plain_texts),
    ("AiError: Bad input: ... required properties at '/messages/1' are 'role,content' (d9e09afe)", with_plain_texts),
    ("json: cannot unmarshal array into Go struct field Message.messages.content of type string", with_plain_texts),
    ('can only concatenate str (not "list") to str', with_plain_texts),
    ("'dict object' has no attribute 'content'", with_plain_texts),
    ("body.messages.1.content: Input should be a valid string", with_plain_texts),
    (
        "{'type': 'string_type', 'loc': ('body', 'messages', 1, 'ChatCompletionRequestAssistantMessage', 'content'), "
        "'msg': 'Input should be a valid string', 'input': None}",
        with_plain_texts,
    ),
    (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        with_every_thought,
    ),
    ("The `reasoning_content` in the thinking mode must be passed back to the API.", with_every_thought),
    ("The reasoning_content in the thinking mode must be passed back to the API.", with_every_thought),
    ("3 validation errors for ToolMessage", with_text_results),
    ("Images are supported in user messages only: images in 'tool' messages return a 400", with_text_results),
    (".messages[565].image[0]: You have uploaded an unsupported image.", with_text_results),
    ("tool message content only supports text content", with_text_results),
    ("No user query found in messages.", with_a_user),
    ("Unexpected message role.", None),
    (f"{LLAMA_CPP}: Unknown (built-in) filter 'items' for type String", with_readable_calls),
    (f"{LLAMA_CPP}: Callee is not a function: got Undefined (hint: 'items')", with_readable_calls),
    ("Jinja Exception: Invalid tool call arguments passed: a", with_readable_calls),
    ("Jinja Exception: Tool call IDs should be alphanumeric strings with length 9!", with_mistrals_ids),
    ("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", with_mistrals_ids),
    (
        "Only user and assistant roles are supported, with the exception of an initial optional system message!",
        with_system_first,
    ),
    ("Message has tool role, but there was no previous assistant message with a tool call!", with_every_result),
    ("Cannot continue an assistant message that contains tool calls.", with_every_result),
    ("Cannot have 2 or more assistant messages at the end of the list.", alternating),
    ("messages.43.content.2: `tool_use` ids must be unique", with_distinct_ids),
    ("The toolUse blocks at messages.2.content contain duplicate Ids: http_request", with_distinct_ids),
    (
        "The image was specified using the image/jpeg media type, but the image appears to be a image/png image",
        with_true_types,
    ),
    ("messages.7.content.5.image.source.base64.data: Image does not match the provided media type", with_true_types),
]


@pytest.mark.parametrize(("words", "mend"), WORDS)
def test_each_template_has_its_words(words: str, mend: object) -> None:
    assert mend_for(msgspec.json.encode({"error": {"message": words}})) is mend


def test_the_rest_of_a_chat_keeps_its_bytes() -> None:
    body = b'{"x": 1.50,"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"}], "y":2}'
    said = b'{"x": 1.50,"messages":[{"role":"system","content":"a\\n\\nb"}], "y":2}'
    assert mended(body, (with_system_first,)) == said
    assert mended(b'{"prompt":"a"}', (with_system_first,)) == b'{"prompt":"a"}'
