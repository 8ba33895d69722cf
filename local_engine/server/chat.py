"""From a request body to what the engine runs: prompt tokens, and sampling parameters per choice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from local_engine.errors import InvalidRequest
from local_engine.sampling.constraints import ConstraintCompiler, requested_constraint
from local_engine.sampling.sampling_params import FORMAT, Constraint, SamplingParams
from local_engine.sampling.thoughts import thoughts_before
from local_engine.sampling.tool_grammar import (
    CallWriting,
    form_or_calls,
    function_of,
    strict_calls,
    tool_constraint,
)
from local_engine.server.logprob_answers import Kind
from local_engine.server.openai_protocol import (
    ChatRequest,
    Sampled,
    parse_chat,
    parse_completion,
    sampling_params,
)
from local_engine.text.messages import plain_message
from local_engine.text.prompts import Prompt, check_ids, read_prompts, truncated
from local_engine.text.thinking import Thinking, thinking_of
from local_engine.text.tokenizer import Tokenizer

DEFAULT_TEXT_TOKENS = 16
MAX_BAD_WORDS = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to run once its constraint is checked: each prompt is answered once per entry of `choices`, in
    this order."""

    kind: Kind
    prompts: list[Prompt]
    choices: list[SamplingParams]
    logprobs: int | None
    prompt_logprobs: int | None
    is_stream: bool
    wants_usage_chunk: bool
    counts_in_every_chunk: bool
    cache_salt: str
    priority: int
    # Parameter schemas by tool name; None without tools.
    tools: Mapping[str, Any] | None = None
    # Whether the answer may call tools without a mark.
    calls_unmarked: bool = True
    most_calls: int | None = None
    thinking: Thinking | None = None
    shows_thoughts: bool = True
    echoes: bool = False
    shows_special: bool = False
    tells_token_ids: bool = False
    names_tokens_by_id: bool = False

    @property
    def answers(self) -> int:
        return len(self.prompts) * len(self.choices)

    @property
    def longest_prompt(self) -> list[int]:
        """The prompt that leaves the least room."""
        return max((prompt.token_ids for prompt in self.prompts), key=len)

    @property
    def constraint(self) -> Constraint | None:
        """What every answer must match."""
        return self.choices[0].constraint

    @property
    def draws(self) -> bool:
        """Whether answers are drawn, rather than only prompts computed."""
        return self.choices[0].max_tokens > 0

    @property
    def tells_logprobs(self) -> bool:
        """Whether the response contains log-probabilities, of answers or prompts."""
        return self.logprobs is not None or self.prompt_logprobs is not None

    def prompt_of(self, answer: int) -> Prompt:
        """The prompt that this answer belongs to."""
        return self.prompts[answer // len(self.choices)]

    def first_of(self, answer: int) -> int:
        """The first answer to the same prompt: only it gets the prompt's log-probabilities."""
        return answer - answer % len(self.choices)

    def params_of(self, answer: int) -> SamplingParams:
        """How an answer is drawn; a prompt's first answer requests the prompt log-probabilities for all of them."""
        params = self.choices[answer % len(self.choices)]
        asked = [self.prompt_logprobs, self.logprobs if self.echoes else None]
        wanted = max((top for top in asked if top is not None), default=None)
        return replace(params, prompt_logprobs=wanted) if self.first_of(answer) == answer else params

    def echo_of(self, answer: int) -> str:
        """The beginning of an answer's text."""
        return self.prompt_of(answer).text if self.echoes else ""


@dataclass(frozen=True, slots=True)
class Model:
    """The model for which requests are prepared. `vocabulary_size` is that of the logits; a tokenizer may know more
    ids."""

    tokenizer: Tokenizer
    constraints: ConstraintCompiler
    context_window: int
    vocabulary_size: int

    @property
    def known_tokens(self) -> int:
        """The number of ids, from 0, known to both the model and its tokenizer."""
        return min(self.tokenizer.vocabulary_size, self.vocabulary_size)


def prepare_chat(body: bytes, model: Model) -> Prepared:
    """Raises InvalidRequest naming the parameter."""
    request = parse_chat(body)
    ids = chat_prompt(request, model, within=_within(request, model))
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    writing = CallWriting(model.tokenizer.tool_format, model.tokenizer.marks)
    call = _tool_choice(request, writing)
    form = requested_constraint(request.response_format, request.constraints) if call is None else None
    prepared = _prepared(
        "chat",
        request,
        [Prompt(ids)],
        model,
        max_tokens=request.longest,
        logprobs=logprobs,
        constraint=call or _beside_calls(form, request, writing),
    )
    prepared = replace(
        prepared,
        # Stop strings must not end a forced call: some formats contain newlines.
        choices=prepared.choices if call is None else [replace(params, stop=()) for params in prepared.choices],
        tools=_callable(request),
        # JSON in a requested format is no call, whatever it looks like.
        calls_unmarked=form is None,
        most_calls=1 if request.parallel_tool_calls is False else None,
        thinking=thinking_of(ids, model.tokenizer, _continued(request)),
        shows_thoughts=request.include_reasoning is not False,
    )
    if prepared.constraint is not None:
        prepared = _thinking_first(prepared, model, is_free=call is None and form is None)
    return replace(prepared, thinking=None) if request.separate_reasoning is False else prepared


def _within(request: Sampled, model: Model) -> int | None:
    """The most tokens that a prompt may have; None if it is to be truncated."""
    return model.context_window if request.truncate_prompt_tokens is None else None


def chat_prompt(request: ChatRequest, model: Model, *, within: int | None = None) -> list[int]:
    """Token ids of the whole conversation. Raises InvalidRequest naming the parameter."""
    messages = [plain_message(message, index) for index, message in enumerate(request.messages)]
    for tool in request.tools or ():
        function_of(tool)
    tools = None if request.tool_choice == "none" else request.tools
    ids = model.tokenizer.encode_chat(
        messages, tools=tools, extra=request.template_names, with_bos=request.add_special_tokens, within=within
    )
    check_ids(ids, model.known_tokens, "messages")
    return ids


def _continued(request: ChatRequest) -> str:
    """The text that the answer continues, if it continues a message."""
    if not (request.chat_template_kwargs or {}).get("continue_final_message", request.continue_final_message):
        return ""
    last = len(request.messages) - 1
    return plain_message(request.messages[last], last)["content"] or ""


def _callable(request: ChatRequest) -> dict[str, Any] | None:
    """Parameter schemas of the functions that may be called, by name; None if there are none."""
    functions = [] if request.tool_choice == "none" else [function_of(tool) for tool in request.tools or ()]
    return {function["name"]: function.get("parameters") for function in functions} or None


def _beside_calls(form: Constraint | None, request: ChatRequest, writing: CallWriting) -> Constraint | None:
    """The constraint on an answer that may call tools: a JSON format or calls, any other constraint as it is, or only
    the schemas of strict tools."""
    if not request.tools or request.tool_choice == "none":
        return form
    if form is None:
        return strict_calls(request.tools, writing)
    is_json = (form.kind, form.parameter) == ("json_schema", FORMAT)
    several = request.parallel_tool_calls is not False
    return form_or_calls(form, request.tools, writing, several=several) if is_json else form


def _thinking_first(prepared: Prepared, model: Model, *, is_free: bool) -> Prepared:
    """Applies constraints after thoughts, or to the whole answer if there are to be none; a free answer may contain
    both."""
    thinking = prepared.thinking
    thoughts = None if thinking is None else thoughts_before(thinking, model.tokenizer, model.vocabulary_size)
    if thoughts is None:
        return prepared if is_free else replace(prepared, thinking=None)
    return replace(prepared, choices=[replace(params, thoughts=thoughts) for params in prepared.choices])


def prepare_completion(body: bytes, model: Model) -> Prepared:
    """Raises InvalidRequest naming the parameter."""
    request = parse_completion(body)
    prompts = read_prompts(
        request.prompt,
        model.tokenizer,
        vocabulary_size=model.known_tokens,
        with_bos=request.add_special_tokens,
        shows_special=not request.skip_special_tokens,
        echoes=bool(request.echo),
        within=_within(request, model),
    )
    return _prepared(
        "text",
        request,
        prompts,
        model,
        max_tokens=DEFAULT_TEXT_TOKENS if request.longest is None else request.longest,
        logprobs=request.logprobs,
        constraint=requested_constraint(request.response_format, request.constraints),
        echoes=bool(request.echo),
    )


def _tool_choice(request: ChatRequest, writing: CallWriting) -> Constraint | None:
    """`required` or a named function forces a call."""
    choice = request.tool_choice
    if choice in (None, "none", "auto"):
        return None
    if not request.tools:
        raise InvalidRequest("tool_choice needs tools.", parameter="tool_choice")
    if choice == "required":
        # A small model that may go on may never end; several calls must be requested explicitly.
        return tool_constraint(request.tools, None, writing, several=request.parallel_tool_calls is True)
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidRequest("tool_choice is none, auto, required or a function.", parameter="tool_choice")
    return tool_constraint(request.tools, name, writing)


def _prepared(
    kind: Kind,
    request: Sampled,
    prompts: list[Prompt],
    model: Model,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    constraint: Constraint | None,
    echoes: bool = False,
) -> Prepared:
    # Without a limit the window is one; the engine core ends an answer there.
    longest = model.context_window if max_tokens is None else min(max_tokens, model.context_window)
    room = max(1, model.context_window - (1 if max_tokens is None else max_tokens))
    prompts = [truncated(prompt, request.truncate_prompt_tokens, room) for prompt in prompts]
    banned = _banned(request.bad_words or [], model)
    choices = [
        sampling_params(
            request,
            max_tokens=longest,
            eos_token_ids=model.tokenizer.eos_token_ids,
            vocabulary_size=model.known_tokens,
            logprobs=logprobs,
            constraint=constraint,
            banned=banned,
            choice=choice,
        )
        for choice in range(request.choices)
    ]
    return Prepared(
        kind=kind,
        prompts=prompts,
        choices=choices,
        logprobs=logprobs,
        prompt_logprobs=request.prompt_logprobs,
        echoes=echoes,
        shows_special=not request.skip_special_tokens,
        tells_token_ids=bool(request.return_token_ids),
        names_tokens_by_id=bool(request.return_tokens_as_token_ids),
        is_stream=bool(request.stream),
        wants_usage_chunk=request.wants_usage_chunk,
        counts_in_every_chunk=request.counts_in_every_chunk,
        cache_salt=request.cache_salt or "",
        priority=request.priority,
    )


def _banned(words: list[str], model: Model) -> tuple[tuple[int, ...], ...]:
    """Each word's tokens, alone and after a space; without those that the model cannot draw."""
    if len(words) > MAX_BAD_WORDS or not all(word.strip() for word in words):
        raise InvalidRequest(f"bad_words takes up to {MAX_BAD_WORDS} words, none of them blank.", parameter="bad_words")
    texts = [text for word in words for text in (word, f" {word}")]
    runs = dict.fromkeys(tuple(model.tokenizer.encode(text, with_bos=False)) for text in texts)
    return tuple(run for run in runs if run and max(run) < model.known_tokens)
