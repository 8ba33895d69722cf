"""From a request's body to what the engine runs: prompt tokens and one set of sampling parameters per choice."""

from dataclasses import dataclass

from local_engine.constraints import ConstraintCompiler, requested_constraint, tool_constraint
from local_engine.errors import InvalidRequest
from local_engine.messages import plain_message
from local_engine.openai_answers import Kind
from local_engine.openai_protocol import ChatRequest, Sampled, parse_chat, parse_completion, sampling_params
from local_engine.sampling_params import Constraint, SamplingParams
from local_engine.tokenizer import Tokenizer

DEFAULT_TEXT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready to run."""

    kind: Kind
    prompt_token_ids: list[int]
    choices: list[SamplingParams]
    is_stream: bool
    wants_usage_chunk: bool
    cache_salt: str
    priority: int
    has_tools: bool = False


def prepare_chat(body: bytes, tokenizer: Tokenizer, constraints: ConstraintCompiler, context_window: int) -> Prepared:
    """Raises InvalidRequest that names the parameter."""
    request = parse_chat(body)
    messages = [plain_message(message, index) for index, message in enumerate(request.messages)]
    tools = None if request.tool_choice == "none" else request.tools
    ids = tokenizer.encode_chat(messages, tools=tools, **(request.chat_template_kwargs or {}))
    constraint = _tool_choice(request) or requested_constraint(request.response_format, request.structured_outputs)
    max_tokens = request.max_completion_tokens or request.max_tokens
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    return _prepared(
        "chat",
        request,
        ids,
        tokenizer,
        context_window,
        max_tokens=max_tokens,
        logprobs=logprobs,
        constraint=_checked(constraint, constraints),
        has_tools=bool(tools),
    )


def prepare_completion(
    body: bytes, tokenizer: Tokenizer, constraints: ConstraintCompiler, context_window: int
) -> Prepared:
    """Raises InvalidRequest that names the parameter."""
    request = parse_completion(body)
    ids = _prompt_ids(request.prompt, tokenizer)
    max_tokens = request.max_tokens or DEFAULT_TEXT_TOKENS
    constraint = requested_constraint(request.response_format, request.structured_outputs)
    return _prepared(
        "text",
        request,
        ids,
        tokenizer,
        context_window,
        max_tokens=max_tokens,
        logprobs=request.logprobs,
        constraint=_checked(constraint, constraints),
    )


def _tool_choice(request: ChatRequest) -> Constraint | None:
    """`required` and a named function leave the model no choice but a call."""
    choice = request.tool_choice
    if choice in (None, "none", "auto"):
        return None
    if not request.tools:
        raise InvalidRequest("tool_choice needs tools.", parameter="tool_choice")
    if choice == "required":
        return tool_constraint(request.tools, None)
    name = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    if not isinstance(name, str):
        raise InvalidRequest("tool_choice is none, auto, required or a function.", parameter="tool_choice")
    return tool_constraint(request.tools, name)


def _checked(constraint: Constraint | None, constraints: ConstraintCompiler) -> Constraint | None:
    if constraint is not None:
        constraints.check(constraint)
    return constraint


def _prepared(
    kind: Kind,
    request: Sampled,
    ids: list[int],
    tokenizer: Tokenizer,
    context_window: int,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    constraint: Constraint | None,
    has_tools: bool = False,
) -> Prepared:
    room = max(1, context_window - len(ids))
    choices = [
        sampling_params(
            request,
            max_tokens=min(max_tokens or room, room),
            eos_token_ids=tokenizer.eos_token_ids,
            vocabulary_size=tokenizer.vocabulary_size,
            logprobs=logprobs,
            constraint=constraint,
            choice=choice,
        )
        for choice in range(request.choices)
    ]
    return Prepared(
        kind=kind,
        prompt_token_ids=ids,
        choices=choices,
        is_stream=bool(request.stream),
        wants_usage_chunk=request.wants_usage_chunk,
        cache_salt=request.cache_salt or "",
        priority=request.priority,
        has_tools=has_tools,
    )


def _prompt_ids(prompt: str | list[str | int], tokenizer: Tokenizer) -> list[int]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return tokenizer.encode(prompt[0])
    ids = [token for token in prompt if isinstance(token, int) and 0 <= token < tokenizer.vocabulary_size]
    if len(ids) != len(prompt) or not ids:
        raise InvalidRequest("prompt is one string, or one list of this model's token ids.", parameter="prompt")
    return ids
