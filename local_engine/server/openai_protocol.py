"""OpenAI's wire format for requests: the fields of a body and their bounds.

Unknown fields are ignored, since OpenAI's clients send many that mean nothing here. Only `sampling_params` knows the
engine's own values.
"""

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from local_engine.errors import InvalidRequest, NotOffered
from local_engine.sampling.sampling_params import MAX_TOP_LOGPROBS, Constraint, SamplingParams
from local_engine.sampling.tool_grammar import function_of
from local_engine.server.refused_fields import REFUSED, REFUSED_IN_CHAT, refuse_fields

T = TypeVar("T")
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenCount = Annotated[int, Meta(ge=0, le=10_000_000)]
MAX_CHOICES: Final = 16
MOST_DIGITS: Final = 20


class StreamOptions(Struct):
    """`include_usage` requests a last chunk with the usage and no choices; `continuous_usage_stats` in addition
    requests the usage so far in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Sampled(Struct, kw_only=True):
    """Fields shared by chat and text completions."""

    model: str = ""
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    cache_salt: str | None = None
    structured_outputs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    # Names used by older and other servers.
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: str | dict[str, Any] | None = None
    grammar: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    # Known so that they can be refused: ignoring them would change the answer.
    best_of: int | None = None
    use_beam_search: bool | None = None
    priority: int = 0

    @property
    def choices(self) -> int:
        """The number of answers requested."""
        return self.n or 1

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def counts_in_every_chunk(self) -> bool:
        """Whether each chunk of a stream reports the usage so far."""
        return self.wants_usage_chunk and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def constraints(self) -> dict[str, Any]:
        """What the answer must match, under the names in `structured_outputs`."""
        others = {
            "json": (self.guided_json, self.json_schema),
            "regex": (self.guided_regex, self.regex),
            "choice": (self.guided_choice,),
            "grammar": (self.guided_grammar, self.grammar, self.ebnf),
        }
        given = {name: next((one for one in asked if one is not None), None) for name, asked in others.items()}
        return (self.structured_outputs or {}) | {name: asked for name, asked in given.items() if asked is not None}


class Named(Struct):
    """A function by its name."""

    name: str


class AllowedTool(Struct):
    """One of the tools that may be called."""

    function: Named


class AllowedTools(Struct):
    """OpenAI's restriction to some of a request's tools."""

    mode: Literal["auto", "required"]
    tools: Annotated[list[AllowedTool], Meta(min_length=1)]


class ChatRequest(Sampled, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    reasoning_effort: str | None = None
    # vLLM's and OpenRouter's; SGLang's.
    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    functions: list[Any] | None = None

    @property
    def longest(self) -> int | None:
        """Maximum tokens of an answer, under either name."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def template_names(self) -> dict[str, Any]:
        """Variables for the chat template besides the messages."""
        said = {
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "documents": self.documents,
            # The name in templates that can omit thoughts: Qwen3's and SmolLM3's.
            "enable_thinking": False if self.reasoning_effort == "none" else None,
        }
        return {name: value for name, value in said.items() if value is not None} | (self.chat_template_kwargs or {})


class CompletionRequest(Sampled, kw_only=True):
    """`POST /v1/completions`: one prompt or several, each as text or as token ids."""

    prompt: str | list[str | int | list[int]]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    @property
    def longest(self) -> int | None:
        """Maximum tokens of an answer."""
        return self.max_tokens


_CHAT = msgspec.json.Decoder(ChatRequest)
_COMPLETION = msgspec.json.Decoder(CompletionRequest)


def parse_chat(body: bytes) -> ChatRequest:
    """Raises InvalidRequest naming the parameter."""
    request = parse_body(_CHAT, body)
    refuse_fields(body, REFUSED_IN_CHAT)
    if request.functions:
        raise NotOffered("functions is no longer supported; send tools.", parameter="functions")
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs: true.", parameter="top_logprobs")
    _refuse(request)
    _refuse_nothing(request.longest, has_use=request.prompt_logprobs is not None)
    if isinstance(request.tool_choice, dict) and request.tool_choice.get("type") == "allowed_tools":
        _leave_allowed(request, request.tool_choice.get("allowed_tools"))
    return request


def _leave_allowed(request: ChatRequest, choice: object) -> None:
    """Leaves out the tools that may not be called."""
    try:
        allowed = msgspec.convert(choice, AllowedTools)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"allowed_tools: {error}", parameter="tool_choice") from error
    tools = {function_of(tool)["name"]: tool for tool in request.tools or ()}
    names = dict.fromkeys(tool.function.name for tool in allowed.tools)
    if unknown := [name for name in names if name not in tools]:
        raise InvalidRequest(f"tool_choice names no tool of this request: {unknown[0]}.", parameter="tool_choice")
    request.tools = [tools[name] for name in tools if name in names]
    request.tool_choice = allowed.mode


def parse_completion(body: bytes) -> CompletionRequest:
    """Raises InvalidRequest naming the parameter."""
    request = parse_body(_COMPLETION, body)
    refuse_fields(body, REFUSED)
    if request.suffix:
        raise NotOffered("suffix is not supported: this model can only continue a text.", parameter="suffix")
    _refuse(request)
    _refuse_nothing(request.longest, has_use=bool(request.echo) or request.prompt_logprobs is not None)
    return request


def _refuse_nothing(longest: int | None, *, has_use: bool) -> None:
    """Raises InvalidRequest for an answer of no tokens that does not show its prompt either."""
    if longest == 0 and not has_use:
        raise InvalidRequest(
            "max_tokens must be at least 1; 0 is only for the prompt itself, with echo or prompt_logprobs.",
            parameter="max_tokens",
        )


def _refuse(request: Sampled) -> None:
    """Raises InvalidRequest for what neither endpoint supports."""
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options needs stream: true.", parameter="stream_options")
    if request.choices > MAX_CHOICES:
        raise NotOffered(f"n is at most {MAX_CHOICES} here; ask again for more.", parameter="n")
    if request.best_of not in (None, request.choices):
        raise NotOffered("best_of is not supported; request n answers and choose one.", parameter="best_of")
    if request.use_beam_search:
        raise NotOffered("Beam search is not supported; request n answers and choose one.", parameter="use_beam_search")
    if request.prompt_logprobs is not None and request.stream:
        raise NotOffered(
            "prompt_logprobs is not sent in a stream; leave stream out, or send echo and logprobs to /v1/completions.",
            parameter="prompt_logprobs",
        )


def parse_body(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Decodes a JSON body; raises InvalidRequest naming the parameter."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = str(error)
        _, _, path = text.partition(" - at `$.")
        raise InvalidRequest(text, parameter=path.rstrip("`") or _missing_field(text)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"The body is not valid JSON in UTF-8: {error}.") from error


def _missing_field(text: str) -> str | None:
    """msgspec's message is: Object missing required field `messages`."""
    return text.split("`")[1] if "missing required field" in text else None


def sampling_params(
    request: Sampled,
    *,
    max_tokens: int,
    eos_token_ids: frozenset[int],
    vocabulary_size: int,
    logprobs: int | None,
    constraint: Constraint | None,
    banned: tuple[tuple[int, ...], ...],
    choice: int,
) -> SamplingParams:
    """The engine's parameters for one choice, with OpenAI's defaults for missing fields."""
    stop = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop or ())
    stop_ids = frozenset(request.stop_token_ids or ())
    if any(not 0 <= token < vocabulary_size for token in stop_ids):
        raise InvalidRequest(f"stop_token_ids are from 0 to {vocabulary_size - 1}.", parameter="stop_token_ids")
    allowed = request.allowed_token_ids
    if allowed is not None and any(not 0 <= token < vocabulary_size for token in allowed):
        raise InvalidRequest(f"allowed_token_ids are from 0 to {vocabulary_size - 1}.", parameter="allowed_token_ids")
    ends = stop_ids | (frozenset() if request.ignore_eos else eos_token_ids)
    return SamplingParams(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        top_k=max(0, request.top_k or 0),
        min_p=request.min_p or 0.0,
        presence_penalty=request.presence_penalty or 0.0,
        frequency_penalty=request.frequency_penalty or 0.0,
        repetition_penalty=request.repetition_penalty or 1.0,
        seed=None if request.seed is None else _next_seed(request.seed, choice),
        max_tokens=max_tokens,
        min_tokens=request.min_tokens or 0,
        stop=stop,
        stop_token_ids=ends,
        logit_bias=_logit_bias(request.logit_bias or {}, vocabulary_size),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        banned=banned,
        includes_stop=request.include_stop_str_in_output,
        shows_special=not request.skip_special_tokens,
        logprobs=logprobs,
        constraint=constraint,
    )


def _next_seed(seed: int, choice: int) -> int:
    """The seed of a further answer, wrapping around within 64 bits; a seed out of bounds is unchanged."""
    return (seed + choice + 2**63) % 2**64 - 2**63 if -(2**63) <= seed < 2**63 else seed


def _logit_bias(raw: dict[str, float], vocabulary_size: int) -> dict[int, float]:
    bias: dict[int, float] = {}
    for key, value in raw.items():
        # Longer numbers are in no vocabulary, and Python refuses to read them.
        if not key.isdecimal() or len(key) > MOST_DIGITS or int(key) >= vocabulary_size:
            raise NotOffered(f"logit_bias names the unknown token {key[:MOST_DIGITS]!r}.", parameter="logit_bias")
        bias[int(key)] = value
    return bias
