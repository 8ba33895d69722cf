"""How one answer is drawn: values and their bounds, checked once on arrival. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from local_engine.errors import InvalidRequest, NotOffered

LEAST_TEMPERATURE = 1e-5
MAX_STOP_STRINGS = 16
FORMAT = "response_format"
MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Constraint:
    """What the answer must match: a JSON schema, a regular expression or a Lark grammar, as text; and the parameter
    that asked for it. With a `mark`, a token, only what follows each such token must match."""

    kind: str
    source: str
    parameter: str = FORMAT
    mark: int | None = None


@dataclass(frozen=True, slots=True)
class Thoughts:
    """Token ids of the tags around thoughts that precede a constrained answer, of blanks that may follow the tags, and
    of end tokens that must not occur within. `is_open`: the prompt has opened them."""

    is_open: bool
    opens: tuple[int, ...]
    closes: int
    blanks: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """`temperature` 0 is greedy. `top_k` 0 and `top_p` 1 are off. `logprobs` is the number of alternatives to report.

    `max_tokens` 0 computes the prompt and draws nothing.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    allowed_token_ids: frozenset[int] | None = None
    # Sequences of tokens that the answer must not contain.
    banned: tuple[tuple[int, ...], ...] = ()
    includes_stop: bool = False
    shows_special: bool = False
    logprobs: int | None = None
    # The same for the prompt's tokens.
    prompt_logprobs: int | None = None
    constraint: Constraint | None = None
    # What may precede the constrained part.
    thoughts: Thoughts | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequest for the first value out of bounds."""
        for name, low, high in BOUNDS:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidRequest(f"{name} must be between {low} and {high}, not {value}.", parameter=name)
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_TOP_LOGPROBS:
            raise InvalidRequest(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}.", parameter="top_logprobs")
        if any(not text for text in self.stop):
            raise InvalidRequest("stop takes no empty string.", parameter="stop")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise NotOffered(f"stop takes up to {MAX_STOP_STRINGS} strings here.", parameter="stop")
        if self.allowed_token_ids is not None:
            self._check_allowed(self.allowed_token_ids)
        if any(not -100 <= bias <= 100 for bias in self.logit_bias.values()):
            raise InvalidRequest("logit_bias values must be between -100 and 100.", parameter="logit_bias")

    def _check_allowed(self, allowed: frozenset[int]) -> None:
        """Whatever else is forbidden, at least one token must remain."""
        if not allowed:
            raise InvalidRequest("allowed_token_ids names no token.", parameter="allowed_token_ids")
        if self.banned:
            raise InvalidRequest("allowed_token_ids cannot be combined with bad_words.", parameter="allowed_token_ids")
        if self.min_tokens and allowed <= self.stop_token_ids:
            raise InvalidRequest("min_tokens forbids all of allowed_token_ids.", parameter="allowed_token_ids")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken: below this temperature the scaled logits overflow float32."""
        return self.temperature < LEAST_TEMPERATURE

    @property
    def draws_from_answer(self) -> bool:
        """Whether the next draw needs the whole answer so far on the host, including its last token."""
        penalises = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return self.constraint is not None or bool(penalises) or any(len(run) > 1 for run in self.banned)

    @property
    def changes_logits(self) -> bool:
        """Whether anything changes the logits before drawing."""
        penalises = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        return bool(penalises or self.banned) or self.favours

    @property
    def favours(self) -> bool:
        """Whether the same amounts are added to the logits in every step."""
        return bool(self.logit_bias) or self.allowed_token_ids is not None


BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("top_k", 0, 1_000_000),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 0.01, 10.0),
    ("max_tokens", 0, 10_000_000),
    ("min_tokens", 0, 10_000_000),
    ("seed", -(2**63), 2**63 - 1),
    ("prompt_logprobs", 0, MAX_TOP_LOGPROBS),
)
