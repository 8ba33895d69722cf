"""How providers of OpenAI's chat format deviate from it: what they rename, lack and reject. Pure data.

docs/translation.md has the same in its table of providers; a test keeps the two in sync.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from backends.formats.call_ids import CallId, for_mistral, for_openai


@dataclass(frozen=True, slots=True)
class Dialect:
    """`renames` maps a field to the only name that the provider accepts for it, as `max_tokens` to
    `max_completion_tokens`. `lacks` are fields to remove, because they only tune the answer and the provider rejects
    them; `message_lacks` the same inside messages, where clients send back whatever another provider's answer had, and
    `call_lacks` inside their tool calls. `withheld` are fields to remove wherever they are sent, responses included.
    `asks_for_usage` is False if streams report usage anyway and `stream_options` is rejected.
    `says_400_of_keys`: see `google_status`. `takes_cache_marks`: it knows Anthropic's `cache_control`, because it
    passes chats on to Anthropic; `refuses_cache_marks`: it rejects a chat with one. `thoughts` are the names under
    which it expects the reasoning of earlier answers; `needs_thoughts`: it rejects a conversation with tool calls if an
    answer lacks reasoning; `needs_signatures`: if none of an answer's calls is signed; `needs_answers`: if a user's
    message follows a tool's result; `needs_opening`: if no user's precedes the first call.
    `thinks_unforced`: it reasons by default, and rejects a forced call then; `names_no_call`: its K3 one by name, its
    K2.5 and K2.6 any.
    `call_id` maps a tool call's id to one that it accepts; None if it accepts any.
    `takes_developer`: it knows the role `developer`; others get `system`, which OpenAI treats the same.
    `efforts` maps a `reasoning_effort` that it rejects to the nearest it accepts; `refuses_effort`: it rejects any for
    a model that does not reason; `says_by_effort` are other fields about reasoning that it does not know: OpenRouter's
    `reasoning`, and the `thinking` of DeepSeek, Moonshot and Z.ai. `models_think`: its models are OpenAI's, with the
    limits in formats/sampling.py. `tiers` maps the values of `service_tier` that chats tell it to its names for them;
    the rest are left out, if there are any.
    `thinkers_lack` are further fields to remove if the model reasons; `names_users_alone`: it rejects `name` on
    messages other than users'. `continues_messages`: an answer may continue the last message. `instructs_once`: its
    responses refuse `instructions` where they continue another. `thinks_in_parts`: its answers' reasoning is among the
    parts of `content`, which others reject, its own models that do not reason among them. `stops_at_calls`: an answer
    that calls functions may end with `stop`. `ignores_custom_tools`: it takes a tool that is no function, and reads
    nothing of it.
    """

    renames: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()
    message_lacks: frozenset[str] = frozenset()
    call_lacks: frozenset[str] = frozenset()
    asks_for_usage: bool = True
    says_400_of_keys: bool = False
    takes_cache_marks: bool = False
    refuses_cache_marks: bool = False
    thoughts: tuple[str, ...] = ()
    needs_thoughts: bool = False
    needs_signatures: bool = False
    needs_answers: bool = False
    needs_opening: bool = False
    thinks_unforced: bool = False
    names_no_call: bool = False
    call_id: CallId | None = None
    takes_developer: bool = False
    efforts: Mapping[str, str] = field(default_factory=dict[str, str])
    tiers: Mapping[str, str] = field(default_factory=dict[str, str])
    refuses_effort: bool = False
    says_by_effort: tuple[str, ...] = ()
    models_think: bool = False
    thinkers_lack: frozenset[str] = frozenset()
    names_users_alone: bool = False
    continues_messages: bool = False
    instructs_once: bool = False
    thinks_in_parts: bool = False
    stops_at_calls: bool = False
    ignores_custom_tools: bool = False


PLAIN: Final = Dialect()

_OPENAI_ALONE: Final = frozenset({"prompt_cache_options", "prompt_cache_retention", "safety_identifier", "verbosity"})
ABOUT_REASONING: Final = ("reasoning", "thinking")
_OPENROUTERS: Final = frozenset({"usage"})
"""`{"include": true}`, which its clients send, asks for what every answer has."""
ENGINE_THOUGHTS: Final = ("reasoning", "reasoning_content")
"""vLLM reads the first, SGLang the second; each ignores the other."""
_THOUGHTS: Final = frozenset({"reasoning_content", "reasoning_details"})
_ANSWERED: Final = frozenset({"annotations", "audio", "refusal"})
"""Members of OpenAI's answers, often null, that many clients send back unchanged."""
_SIGNED: Final = frozenset({"extra_content"})
"""Where Gemini's calls carry their thought signatures."""
_AT_MOST_HIGH: Final[Mapping[str, str]] = {"xhigh": "high", "max": "high"}
_FROM_LOW_TO_HIGH: Final[Mapping[str, str]] = {"minimal": "low", **_AT_MOST_HIGH}
_OLDER_LIMIT: Final[Mapping[str, str]] = {"max_completion_tokens": "max_tokens"}

DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect(
        renames={"max_tokens": "max_completion_tokens"},
        lacks=_OPENROUTERS,
        refuses_cache_marks=True,
        call_id=for_openai,
        takes_developer=True,
        models_think=True,
        says_by_effort=ABOUT_REASONING,
    ),
    "cerebras": Dialect(
        lacks=_OPENAI_ALONE | _OPENROUTERS | {"metadata", "store"},
        message_lacks=_THOUGHTS | _ANSWERED | {"function_call"},
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        takes_developer=True,
        efforts=_FROM_LOW_TO_HIGH,
        says_by_effort=ABOUT_REASONING,
    ),
    "deepseek": Dialect(
        renames=_OLDER_LIMIT, thoughts=("reasoning_content",), needs_thoughts=True, thinks_unforced=True
    ),
    "gemini": Dialect(
        lacks=_OPENAI_ALONE
        | _OPENROUTERS
        | {"frequency_penalty", "metadata", "presence_penalty", "prompt_cache_key", "store"},
        says_400_of_keys=True,
        efforts=_AT_MOST_HIGH,
        needs_signatures=True,
        needs_opening=True,
        stops_at_calls=True,
        says_by_effort=ABOUT_REASONING,
    ),
    "groq": Dialect(
        lacks=_OPENAI_ALONE
        | _OPENROUTERS
        | {"logit_bias", "logprobs", "prediction", "prompt_cache_key", "top_logprobs"},
        message_lacks=_THOUGHTS | _ANSWERED,
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        takes_developer=True,
        efforts=_FROM_LOW_TO_HIGH,
        refuses_effort=True,
        says_by_effort=ABOUT_REASONING,
    ),
    "mistral": Dialect(
        renames={**_OLDER_LIMIT, "seed": "random_seed"},
        lacks=_OPENAI_ALONE | _OPENROUTERS | {"logit_bias", "store", "stream_options", "user"},
        message_lacks=_THOUGHTS | _ANSWERED | {"function_call", "name", "reasoning"},
        call_lacks=_SIGNED,
        asks_for_usage=False,
        refuses_cache_marks=True,
        call_id=for_mistral,
        needs_answers=True,
        tiers={"priority": "auto", "fast": "auto"},
        refuses_effort=True,
        thinks_in_parts=True,
        says_by_effort=ABOUT_REASONING,
    ),
    "moonshot": Dialect(
        thoughts=("reasoning_content",),
        needs_thoughts=True,
        names_no_call=True,
        thinkers_lack=frozenset({"frequency_penalty", "presence_penalty", "temperature", "top_p"}),
    ),
    "ollama": Dialect(renames=_OLDER_LIMIT, ignores_custom_tools=True),
    "fireworks": Dialect(
        lacks=_OPENAI_ALONE | _OPENROUTERS | {"store"},
        message_lacks=_ANSWERED | {"reasoning", "reasoning_details"},
        call_lacks=_SIGNED,
        refuses_cache_marks=True,
        efforts=_FROM_LOW_TO_HIGH,
        says_by_effort=ABOUT_REASONING,
    ),
    "openrouter": Dialect(
        withheld=frozenset({"models", "preset", "route"}), takes_cache_marks=True, stops_at_calls=True
    ),
    "snowflake": Dialect(renames={"max_tokens": "max_completion_tokens"}),
    "together": Dialect(renames=_OLDER_LIMIT),
    "xai": Dialect(
        withheld=frozenset({"deferred"}),
        refuses_effort=True,
        thinkers_lack=frozenset({"frequency_penalty", "presence_penalty"}),
        names_users_alone=True,
        instructs_once=True,
    ),
    "zai": Dialect(renames=_OLDER_LIMIT),
}
"""By provider. Sources: what they answer 400 and 422 to, and the request types of their own clients and servers
(Cerebras, Fireworks, Groq, Mistral, Ollama, Together). DeepSeek, Ollama, Snowflake and Z.ai ignore a limit whose name
they do not know. What is withheld from OpenRouter would let a caller name other models than the one decided on; what is
withheld from xAI would let one fetch an answer later, unbooked."""


def dialect_of(provider: str) -> Dialect:
    """The provider's dialect; plain OpenAI if it is not known to differ."""
    return DIALECTS.get(provider, PLAIN)


def dialect_of_engine(provider: str) -> Dialect:
    """The dialect of vLLM, SGLang or our engine, whoever runs it."""
    return replace(dialect_of(provider), thoughts=ENGINE_THOUGHTS, continues_messages=True)
