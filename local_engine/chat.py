"""From a request's body to what the engine runs: prompt tokens and one set of sampling parameters per choice."""

from dataclasses import dataclass, replace

from local_engine.constraints import ConstraintCompiler, function_of, requested_constraint, tool_constraint
from local_engine.errors import InvalidRequest
from local_engine.messages import plain_message
from local_engine.openai_answers import Kind
from local_engine.openai_protocol import (
    ChatRequest,
    Sampled,
    parse_chat,
    parse_completion,
    sampling_params,
    template_names,
)
from local_engine.sampling_params import Constraint, SamplingParams
from local_engine.tokenizer import Tokenizer

DEFAULT_TEXT_TOKENS = 16
MAX_BAD_WORDS = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to run: each of its prompts is answered once for each of `choices`, in this order."""

    kind: Kind
    prompts: list[list[int]]
    choices: list[SamplingParams]
    is_stream: bool
    wants_usage_chunk: bool
    counts_in_every_chunk: bool
    cache_salt: str
    priority: int
    has_tools: bool = False
    most_calls: int | None = None
    echoes: tuple[str, ...] = ()

    @property
    def answers(self) -> int:
        """How many there will be."""
        return len(self.prompts) * len(self.choices)

    @property
    def longest_prompt(self) -> list[int]:
        """The one that leaves the least room."""
        return max(self.prompts, key=len)

    def prompt_of(self, answer: int) -> int:
        """The index of the prompt that an answer is to."""
        return answer // len(self.choices)

    def params_of(self, answer: int) -> SamplingParams:
        """How an answer is drawn."""
        return self.choices[answer % len(self.choices)]

    def echo_of(self, answer: int) -> str:
        """What an answer's text begins with."""
        return self.echoes[self.prompt_of(answer)] if self.echoes else ""


@dataclass(frozen=True, slots=True)
class Model:
    """What requests are prepared for. `vocabulary_size` is the logits'; a tokenizer may know ids beyond it."""

    tokenizer: Tokenizer
    constraints: ConstraintCompiler
    context_window: int
    vocabulary_size: int


def prepare_chat(body: bytes, model: Model) -> Prepared:
    """Raises InvalidRequest that names the parameter."""
    request = parse_chat(body)
    messages = [plain_message(message, index) for index, message in enumerate(request.messages)]
    for tool in request.tools or ():
        function_of(tool)
    tools = None if request.tool_choice == "none" else request.tools
    extra = template_names(
        request.add_generation_prompt,
        request.continue_final_message,
        request.documents,
        request.chat_template_kwargs,
    )
    ids = model.tokenizer.encode_chat(messages, tools=tools, extra=extra, with_bos=request.add_special_tokens)
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    prepared = _prepared(
        "chat",
        request,
        [ids],
        model,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        logprobs=logprobs,
        constraint=_tool_choice(request) or requested_constraint(request.response_format, request.constraints),
    )
    return replace(prepared, has_tools=bool(tools), most_calls=1 if request.parallel_tool_calls is False else None)


def prepare_completion(body: bytes, model: Model) -> Prepared:
    """Raises InvalidRequest that names the parameter."""
    request = parse_completion(body)
    prompts = [
        _prompt_ids(prompt, model.tokenizer, with_bos=request.add_special_tokens) for prompt in _prompts(request.prompt)
    ]
    prepared = _prepared(
        "text",
        request,
        prompts,
        model,
        max_tokens=request.max_tokens or DEFAULT_TEXT_TOKENS,
        logprobs=request.logprobs,
        constraint=requested_constraint(request.response_format, request.constraints),
    )
    if not request.echo:
        return prepared
    texts = [
        prompt if isinstance(prompt, str) else model.tokenizer.decode(prompt) for prompt in _prompts(request.prompt)
    ]
    return replace(prepared, echoes=tuple(texts))


def _tool_choice(request: ChatRequest) -> Constraint | None:
    """`required` and a named function leave the model no choice but a call."""
    choice = request.tool_choice
    if choice in (None, "none", "auto"):
        return None
    if not request.tools:
        raise InvalidRequest("tool_choice needs tools.", parameter="tool_choice")
    if choice == "required":
        return tool_constraint(request.tools, None)
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise InvalidRequest("tool_choice is none, auto, required or a function.", parameter="tool_choice")
    return tool_constraint(request.tools, name)


def _prepared(
    kind: Kind,
    request: Sampled,
    prompts: list[list[int]],
    model: Model,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    constraint: Constraint | None,
) -> Prepared:
    known = min(model.tokenizer.vocabulary_size, model.vocabulary_size)
    for ids in prompts:
        _check_ids(ids, known, kind)
    # Without a limit the window is one; the engine core ends an answer there.
    longest = min(max_tokens or model.context_window, model.context_window)
    room = max(1, model.context_window - (max_tokens or 1))
    prompts = [_truncated(ids, request.truncate_prompt_tokens, room) for ids in prompts]
    banned = _banned(request.bad_words or [], model.tokenizer)
    if constraint is not None:
        model.constraints.check(constraint)
    choices = [
        sampling_params(
            request,
            max_tokens=longest,
            eos_token_ids=model.tokenizer.eos_token_ids,
            vocabulary_size=known,
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
        is_stream=bool(request.stream),
        wants_usage_chunk=request.wants_usage_chunk,
        counts_in_every_chunk=request.counts_in_every_chunk,
        cache_salt=request.cache_salt or "",
        priority=request.priority,
    )


def _check_ids(ids: list[int], known: int, kind: Kind) -> None:
    """A token that the model has no vector for would fail the step of everybody beside it."""
    parameter = "messages" if kind == "chat" else "prompt"
    if not ids:
        raise InvalidRequest("The prompt is empty.", parameter=parameter)
    if not 0 <= min(ids) <= max(ids) < known:
        wrong = max(ids) if max(ids) >= known else min(ids)
        message = f"Token {wrong} is out of this model's vocabulary of {known} tokens."
        raise InvalidRequest(message, parameter=parameter)


def _prompts(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """One text or one list of ids is one prompt; a list of such is as many."""
    if isinstance(prompt, str):
        return [prompt]
    ids = [token for token in prompt if isinstance(token, int)]
    several = [entry for entry in prompt if not isinstance(entry, int)]
    if (ids and several) or not prompt:
        raise InvalidRequest(
            "prompt is a text, a list of token ids, or a list of such prompts; never empty, never mixed.",
            parameter="prompt",
        )
    return several or [ids]


def _prompt_ids(prompt: str | list[int], tokenizer: Tokenizer, *, with_bos: bool) -> list[int]:
    return tokenizer.encode(prompt, with_bos=with_bos) if isinstance(prompt, str) else prompt


def _truncated(ids: list[int], keep: int | None, room: int) -> list[int]:
    """The prompt's last tokens, as many as asked for; -1 keeps what leaves the answer its room."""
    if keep is None:
        return ids
    if keep == 0:
        raise InvalidRequest("truncate_prompt_tokens is at least 1, or -1.", parameter="truncate_prompt_tokens")
    return ids[-keep:] if keep > 0 else ids[-room:]


def _banned(words: list[str], tokenizer: Tokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word's tokens, as it is cut alone and after a space."""
    if len(words) > MAX_BAD_WORDS or not all(word.strip() for word in words):
        raise InvalidRequest(f"bad_words takes up to {MAX_BAD_WORDS} words.", parameter="bad_words")
    texts = [text for word in words for text in (word, f" {word}")]
    return tuple(dict.fromkeys(tuple(tokenizer.encode(text, with_bos=False)) for text in texts))
