"""Draws tokens from logits. A row's draw depends only on its own request: its seed, its history, its logits."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from local_engine.request import Request
from local_engine.sampling.allowed_matches import AllowedMatches
from local_engine.sampling.constraints import ConstraintCompiler, Matcher
from local_engine.sampling.filters import candidate_distribution
from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.sampling.marked_calls import MarkedCalls
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.sampling.thoughts import AfterThoughts
from local_engine.transfer import send

SEEDS = 2**64


@dataclass(frozen=True, slots=True)
class Drawn:
    """Result for one row: the accepted drafts and the token after them; log-probabilities if requested.

    `is_complete`: the request's constraint allows nothing more; `failure`: why it can no longer be applied.
    `is_broken`: the logits are no numbers, so nothing could be drawn.
    """

    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    is_complete: bool = False
    failure: str | None = None
    is_broken: bool = False


class Sampler:
    """Keeps one random generator per running request."""

    def __init__(self, device: torch.device, constraints: ConstraintCompiler | None = None) -> None:
        self._device = device
        self._constraints = constraints
        self._matchers: dict[str, Matcher] = {}
        self._generators: dict[str, np.random.Generator] = {}
        self._biases: dict[str, torch.Tensor] = {}
        self._noise = np.empty(0)

    def forget(self, request_id: str) -> None:
        """Drops a finished request's generator, matcher and bias."""
        self._generators.pop(request_id, None)
        self._matchers.pop(request_id, None)
        self._biases.pop(request_id, None)

    def draw(self, logits: torch.Tensor, requests: list[Request]) -> list[Drawn]:
        """`logits`, float32, has len(drafts) + 1 rows for each request, in order."""
        is_any_greedy = any(request.params.is_greedy for request in requests)
        best: list[int] = logits.argmax(dim=-1).tolist() if is_any_greedy else []
        is_sound: list[bool] = logits.amax(dim=-1).isfinite().tolist()
        drawn: list[Drawn] = []
        start = 0
        for request in requests:
            end = start + len(request.draft_token_ids) + 1
            if all(is_sound[start:end]):
                drawn.append(self._draw_row(logits[start:end], best[start:end], request))
            else:
                drawn.append(Drawn([], [], is_broken=True))
            start = end
        return drawn

    def _draw_row(self, logits: torch.Tensor, best: list[int], request: Request) -> Drawn:
        """Draws position by position as long as the draft agrees."""
        params = request.params
        new_ids: list[int] = []
        logprobs: list[TokenLogprobs] = []
        matcher = self._matcher(request)
        for position, row in enumerate(logits):
            changed = change_logits(row, request, new_ids, self._bias(request, len(row)))
            changed = changed if matcher is None else within(matcher, changed, row)
            if params.is_greedy:
                token = best[position] if changed is row else int(changed.argmax())
            else:
                token = self._draw_one(changed, request)
            new_ids.append(token)
            if matcher is not None:
                matcher.consume(token)
            if params.logprobs is not None:
                logprobs.append(token_logprobs(row, token, params.logprobs))
            if position < len(request.draft_token_ids) and token != request.draft_token_ids[position]:
                break
        if matcher is None:
            return Drawn(new_ids, logprobs)
        return Drawn(new_ids, logprobs, is_complete=matcher.is_complete, failure=matcher.failure)

    def _matcher(self, request: Request) -> Matcher | None:
        constraint = request.params.constraint
        if constraint is None or self._constraints is None:
            return None
        if request.request_id not in self._matchers:
            begin, thoughts = partial(self._constraints.matcher, constraint), request.params.thoughts
            matcher = begin() if constraint.mark is None else MarkedCalls(begin, constraint.mark)
            matcher = matcher if thoughts is None else AfterThoughts(matcher, thoughts)
            is_free = request.params.allowed_token_ids is None
            self._matchers[request.request_id] = matcher if is_free else AllowedMatches(matcher)
        return self._matchers[request.request_id]

    def _bias(self, request: Request, vocabulary: int) -> torch.Tensor | None:
        """Prepared once: a bias may name every token of the vocabulary."""
        if not request.params.favours:
            return None
        if request.request_id not in self._biases:
            self._biases[request.request_id] = bias_row(request.params, vocabulary, self._device)
        return self._biases[request.request_id]

    def _draw_one(self, logits: torch.Tensor, request: Request) -> int:
        probabilities, candidates = candidate_distribution(logits, request.params)
        winner = self._race(probabilities.numpy(), self._generator(request))
        return winner if candidates is None else int(candidates[winner])

    def _race(self, probabilities: np.ndarray, generator: np.random.Generator) -> int:
        """An index drawn by probability: the one whose exponential clock rings first.

        If a probability is off by a millionth, one draw in a million changes; with a cumulative sum all later indices
        would shift.
        """
        if len(self._noise) < len(probabilities):
            self._noise = np.empty(len(probabilities))
        noise = self._noise[: len(probabilities)]
        generator.standard_exponential(out=noise)
        return int((probabilities / noise).argmax())

    def _generator(self, request: Request) -> np.random.Generator:
        if request.request_id not in self._generators:
            seed = request.params.seed
            bits = np.random.SFC64(None if seed is None else seed % SEEDS)
            self._generators[request.request_id] = np.random.Generator(bits)
        return self._generators[request.request_id]


def within(matcher: Matcher, changed: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """What the constraint leaves of a row. Bans are ignored if they leave nothing, as the constraint must hold."""
    masked = matcher.mask(changed)
    return masked if changed is row or bool(masked.isfinite().any()) else matcher.mask(row)


def bias_row(params: SamplingParams, vocabulary: int, device: torch.device) -> torch.Tensor:
    """Added to each row of an answer: its `logit_bias`, and minus infinity for tokens that are not allowed."""
    row = torch.zeros(vocabulary, device=device)
    if params.allowed_token_ids is not None:
        row.fill_(float("-inf")).index_fill_(0, send(list(params.allowed_token_ids), torch.int64, device), 0.0)
    if params.logit_bias:
        # With a bias, steps may still run ahead of the host, which `send` does not block.
        ids = send(list(params.logit_bias), torch.int64, device)
        row.index_add_(0, ids, send(list(params.logit_bias.values()), row.dtype, device))
    return row


def change_logits(
    logits: torch.Tensor, request: Request, new_ids: list[int], bias: torch.Tensor | None
) -> torch.Tensor:
    """One row after penalties, bias and bans, given `new_ids` drawn already; the row itself if nothing applies.

    Presence and frequency penalties count the answer, repetition also the prompt; then `bias_row` is added, then bans.
    """
    params, bans_end = request.params, _bans_end(request, len(new_ids))
    if not (params.changes_logits or bans_end):
        return logits
    logits = logits.clone()
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*request.token_ids, *new_ids}), device=logits.device)
        values = logits[seen]
        logits[seen] = torch.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
    counts = Counter(request.output_token_ids + new_ids)
    if counts and (params.presence_penalty or params.frequency_penalty):
        ids = torch.tensor(list(counts), device=logits.device)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
        logits[ids] -= params.presence_penalty + params.frequency_penalty * times
    if bias is not None:
        logits += bias
    if bans_end:
        # A file may list an end token that its model cannot draw.
        logits[[end for end in params.stop_token_ids if end < len(logits)]] = float("-inf")
    if params.banned and (ends := _ends_of_banned(params.banned, request.output_token_ids + new_ids)):
        logits[ends] = float("-inf")
    return logits


def _ends_of_banned(banned: tuple[tuple[int, ...], ...], drawn: list[int]) -> list[int]:
    """The last tokens of banned runs whose other tokens have just been drawn."""
    return [run[-1] for run in banned if len(run) == 1 or tuple(drawn[1 - len(run) :]) == run[:-1]]


def leaves_logits(request: Request, drawn: int) -> bool:
    """Whether `change_logits` would return the row itself after `drawn` tokens in this step."""
    return not (request.params.changes_logits or _bans_end(request, drawn))


def _bans_end(request: Request, drawn: int) -> bool:
    """Whether the answer is still below its minimum length."""
    params = request.params
    too_short = request.length - request.prompt_tokens + drawn < params.min_tokens
    says_end = params.constraint is not None and params.constraint.mark is None
    return too_short and bool(params.stop_token_ids) and not says_end


def token_logprobs(logits: torch.Tensor, token_id: int, top: int) -> TokenLogprobs:
    """Log-probabilities of one row."""
    values = logits.log_softmax(dim=-1)
    best, ids = values.topk(top) if top else (values[:0], values[:0])
    pairs = tuple(zip((int(i) for i in ids.tolist()), (float(v) for v in best.tolist()), strict=True))
    return TokenLogprobs(token_id=token_id, logprob=float(values[token_id]), top=pairs)
