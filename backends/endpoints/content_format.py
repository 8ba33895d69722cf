"""Translates a generateContent request of Gemini's API to an OpenAI chat body. Pure.

content_events.py translates the answer. docs/translation.md lists what is lost.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

import msgspec

from backends.endpoints.content_parts import Calls, model_message, user_messages
from backends.endpoints.content_schema import json_schema_of
from backends.endpoints.content_wrapping import Wrapping, needs_wrapping, wrapped
from backends.endpoints.function_names import name_for_chats, own_names
from backends.formats.chat_fields import invalid, list_of, object_of, parse_object, untranslatable
from backends.formats.efforts import effort_of_budget
from backends.formats.json_objects import Fields, decode_object, number, text_of
from backends.formats.past_thinking import name_thoughts
from backends.formats.proto_json import NamedTwice, many_of, member_of, members_of, messages_of, whole_number
from backends.formats.schema_subset import for_openai, is_strict

_NUMBERS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_WHOLE: Final = {
    "maxOutputTokens": "max_tokens",
    "candidateCount": "n",
    "seed": "seed",
}
_MODES: Final = {"auto": "auto", "validated": "auto", "any": "required", "none": "none"}
_EFFORTS: Final = {"minimal": "minimal", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
_TIERS: Final = ("flex", "priority")

_BOUND: Final = {
    "cachedContent": "cached content is stored at Google; send it in full, or use a model with Google's own API",
    "continuationToken": "an answer can only be continued where it began; use a model with Google's own API",
}
"""Fields that depend on state stored at Google."""
_SPOKEN: Final = {
    "speechConfig": "this model cannot answer with speech",
    "imageConfig": "this model cannot answer with images",
    "audioTranscriptionConfig": "only Google's models transcribe audio this way",
}
_PLAIN, _JSON, _ENUM = "text/plain", "application/json", "text/x.enum"
_ANY_JSON: Final[Fields] = {"type": "json_object"}


class ContentAsked(NamedTuple):
    """The equivalent chat, and how to write its answer: whether to include thoughts, what the object requested instead
    wraps, and the caller's own names of the functions that the chat renames."""

    body: bytes
    shows_thoughts: bool
    wrapping: Wrapping
    names: Mapping[str, str]


def chat_from_content(
    body: bytes,
    *,
    model: str,
    is_stream: bool,
    thoughts: tuple[str, ...] = (),
    takes_effort: bool = False,
    signs_calls: bool = False,
) -> ContentAsked:
    """The equivalent OpenAI chat, with past reasoning under the names in `thoughts`; effort and call signatures are
    included only for backends known to accept them.
    Raises UpstreamRejected, naming the field; Untranslatable if other backends could serve it."""
    fields = parse_object(body)
    try:
        asked = members_of(fields)
        config = member_of(asked, "generationConfig")
        thinking = member_of(config, "thinkingConfig")
        chat: Fields = {"model": model, **_generation(config)}
        if takes_effort and (effort := _effort(thinking)) is not None:
            chat["reasoning_effort"] = effort
        form, wrapping = _response_format(config)
        if form is not None:
            chat["response_format"] = form
        for name, why in _BOUND.items():
            if asked.get(name):
                raise untranslatable(name, why)
        messages = [name_thoughts(message, thoughts) for message in _messages(asked, signs_calls=signs_calls)]
        if not messages:
            raise invalid("contents", "all of them are empty; send at least one text")
        declared = _declared(asked)
        chat |= _tools(asked, declared)
        if chat.get("response_format") == _ANY_JSON:
            messages = _told_of_json(messages)
    except NamedTwice as error:
        raise invalid("body", str(error)) from error
    except RecursionError as error:
        raise invalid("body", "is nested too deeply") from error
    if is_stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if tier := tier_of(asked):
        chat["service_tier"] = tier
    body = msgspec.json.encode(chat | {"messages": messages})
    names = own_names(text_of(one, "name") or "" for one in declared)
    return ContentAsked(body, thinking.get("includeThoughts") is True, wrapping, names)


def tier_of(asked: Fields) -> str | None:
    """The service tier that a request asks for, in either spelling of the enum; None for the standard one."""
    tier = (text_of(asked, "serviceTier") or "").lower().removeprefix("service_tier_")
    return tier if tier in _TIERS else None


def request_to_count(body: bytes) -> bytes:
    """The request inside a count call, which holds either the contents alone or a whole request."""
    fields = decode_object(body) or {}
    inner = fields.get("generateContentRequest") or fields.get("generate_content_request")
    return msgspec.json.encode(inner) if isinstance(inner, dict) else body


def _messages(asked: Fields, *, signs_calls: bool) -> Iterator[Fields]:
    system = messages_of(member_of(asked, "systemInstruction"), "parts")
    if instructions := "\n".join(text for part in system if (text := text_of(part, "text"))):
        yield {"role": "system", "content": instructions}
    calls = Calls()
    said: list[Fields] = []
    said_at = ""
    for place, item in enumerate(list_of(many_of(asked.get("contents")), "contents")):
        where = f"contents[{place}]"
        content = members_of(object_of(item, where))
        given = list_of(many_of(content.get("parts")), f"{where}.parts")
        parts = [members_of(object_of(part, f"{where}.parts")) for part in given]
        role = content.get("role", "user")
        if role == "model":  # clients keep each piece of a streamed answer as a content of its own
            said_at = where
            said += parts
            continue
        yield from model_message(said, calls, said_at, signs_calls=signs_calls)
        said = []
        if role in ("user", "function", ""):
            yield from user_messages(parts, calls, where)
        else:
            raise invalid(f"{where}.role", "must be user or model")
    yield from model_message(said, calls, said_at, signs_calls=signs_calls)


def _told_of_json(messages: list[Fields]) -> list[Fields]:
    """OpenAI rejects JSON mode unless a message mentions JSON; for Gemini the MIME type is enough."""
    if b"json" in msgspec.json.encode(messages).lower():
        return messages
    return [{"role": "system", "content": "Answer in JSON."}, *messages]


def _generation(config: Fields) -> Fields:
    _refuse_sound_and_images(config)
    chat = _numbers(config)
    if stop := list_of(many_of(config.get("stopSequences")), "generationConfig.stopSequences"):
        chat["stop"] = stop
    if config.get("responseLogprobs") is True:
        chat["logprobs"] = True
        if (most := whole_number(config.get("logprobs"))) is not None:
            chat["top_logprobs"] = most
    return chat


def _refuse_sound_and_images(config: Fields) -> None:
    for name, why in _SPOKEN.items():
        if config.get(name):
            raise untranslatable(f"generationConfig.{name}", why)
    where = "generationConfig.responseModalities"
    modalities = list_of(many_of(config.get("responseModalities")), where)
    if any(str(one).upper() not in ("TEXT", "MODALITY_UNSPECIFIED") for one in modalities):
        raise untranslatable(where, "this model answers with text alone")


def _numbers(config: Fields) -> Fields:
    chat: Fields = {}
    for theirs, ours in _NUMBERS.items():
        if config.get(theirs) is not None:
            if (value := number(config, theirs)) is None:
                raise invalid(f"generationConfig.{theirs}", "must be a number")
            chat[ours] = value
    for theirs, ours in _WHOLE.items():
        if config.get(theirs) is not None:
            if (count := whole_number(config[theirs])) is None:
                raise invalid(f"generationConfig.{theirs}", "must be an integer")
            chat[ours] = count
    return chat


def _effort(thinking: Fields) -> str | None:
    if (level := _EFFORTS.get((text_of(thinking, "thinkingLevel") or "").lower())) is not None:
        return level
    budget = whole_number(thinking.get("thinkingBudget"))
    if budget is None or budget < 0:  # the model decides
        return None
    return effort_of_budget(budget) if budget else "minimal"  # some models cannot turn thinking off


def _response_format(config: Fields) -> tuple[Fields | None, Wrapping]:
    kind = text_of(config, "responseMimeType") or _PLAIN
    if kind not in (_JSON, _ENUM):
        return None, ""
    schema = config.get("responseJsonSchema")
    if schema is None and (given := config.get("responseSchema")) is not None:
        schema = json_schema_of(object_of(given, "generationConfig.responseSchema"), closes=True)
    if schema is None:
        return _ANY_JSON, ""
    wanted, wrapping = object_of(schema, "generationConfig.responseJsonSchema"), ""
    if needs_wrapping(wanted):
        wanted, wrapping = wrapped(wanted), "text" if kind == _ENUM else "json"
    asked: Fields = {"name": "answer", "schema": wanted, "strict": is_strict(wanted)}
    return {"type": "json_schema", "json_schema": asked}, wrapping


def _declared(asked: Fields) -> list[Fields]:
    declared: list[Fields] = []
    for place, item in enumerate(list_of(many_of(asked.get("tools")), "tools")):
        where = f"tools[{place}]"
        tool = members_of(object_of(item, where))
        for name in tool.keys() - {"functionDeclarations"}:
            raise untranslatable(f"{where}.{name}", "this tool runs at Google, and is not available to this model")
        where += ".functionDeclarations"
        given = list_of(many_of(tool.get("functionDeclarations")), where)
        declared += [members_of(object_of(one, where)) for one in given]
    return declared


def _tools(asked: Fields, declared: list[Fields]) -> Fields:
    if not declared:
        return {}
    config = member_of(member_of(asked, "toolConfig"), "functionCallingConfig")
    mode = (text_of(config, "mode") or "auto").lower()
    where = "toolConfig.functionCallingConfig.allowedFunctionNames"
    allowed = list_of(many_of(config.get("allowedFunctionNames")), where)
    names = {one for one in allowed if isinstance(one, str)}
    wanted = [one for one in declared if not allowed or text_of(one, "name") in names]
    functions = [_function(one) for one in wanted]
    choice: object = _MODES.get(mode, "auto")
    if choice == "required" and len(allowed) == 1:
        choice = {"type": "function", "function": {"name": name_for_chats(str(allowed[0]))}}
    made: Fields = {"tools": functions}
    return made if choice == "auto" else made | {"tool_choice": choice}


def _function(declared: Fields) -> Fields:
    name = text_of(declared, "name")
    if not name:
        raise invalid("tools.functionDeclarations.name", "must be a non-empty string")
    function: Fields = {"name": name_for_chats(name)}
    if description := text_of(declared, "description"):
        function["description"] = description
    schema = declared.get("parametersJsonSchema")
    if schema is None and (given := declared.get("parameters")) is not None:
        schema = json_schema_of(object_of(given, "tools.functionDeclarations.parameters"))
    if schema is not None:
        function["parameters"] = for_openai(cast(Fields, schema)) if isinstance(schema, dict) else schema
    return {"type": "function", "function": function}
