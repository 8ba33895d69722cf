"""The schema of a rules file. rules_text.py parses the text and reports what is wrong with it."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Literal

import msgspec
from pydantic import AfterValidator, Field, model_validator

from backends.protocol import MediaOperation
from gateway.money import PICO_PER_USD
from gateway.strict import Strict
from gateway.yaml_document import NAME_PATTERN

Operation = Literal[
    "chat.completions", "completions", "embeddings", "responses", "messages", "generate_content", MediaOperation
]
"""Operations that rules decide; counting tokens is decided as the answer would be."""
CASCADED: Operation = "chat.completions"
"""The operation whose complete answers a program can verify."""

EMBEDDINGS = "embeddings"
RERANK = "rerank"
Specialty = Literal["embeddings", "images", "speech", "transcription", "moderation", "rerank"]
"""What a specialised model supports instead of writing text; only such models are candidates for it."""
SPECIALTIES: Mapping[str, Specialty] = {
    EMBEDDINGS: EMBEDDINGS,
    "images.generations": "images",
    "images.edits": "images",
    "audio.speech": "speech",
    "audio.transcriptions": "transcription",
    "audio.translations": "transcription",
    "moderations": "moderation",
    RERANK: RERANK,
}
"""Specialty by operation; all other operations are for models that write text."""
READ_APART: frozenset[Specialty | None] = frozenset({EMBEDDINGS, RERANK, "moderation"})
"""Those that take many texts and read each by itself: together they may exceed the window, and one that does may be cut
by the server, if its caller asks (`truncate_prompt_tokens`)."""

Need = Literal["streaming", "tools", "json_schema", "vision", "audio", "reasoning"]
Ability = Literal[Need, Specialty]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]


def _whole_pico_usd(limit: Decimal) -> int:
    """Rounded down: a third of a dollar is a valid limit, though it cannot be booked."""
    return int(limit * PICO_PER_USD)


def _unique(values: list[str]) -> list[str]:
    if len(set(values)) != len(values):
        raise ValueError("an item is listed twice")
    return values


AUTO = "auto"
"""The model name that leaves the choice to the rules."""
Names = Annotated[list[str], Field(min_length=1), AfterValidator(_unique)]


class Range(Strict):
    """A range; both ends are included."""

    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> "Range":
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least, at_most or both")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError("can never match: at_least is above at_most")
        return self

    def holds(self, value: float | None) -> bool:
        """False for an unknown value: a condition on difficulty does not match when difficulty is unknown."""
        if value is None:
            return False
        low, high = self.at_least, self.at_most
        return (low is None or value >= low) and (high is None or value <= high)

    def contains(self, other: "Range") -> bool:
        low, high = float("-inf"), float("inf")
        return (low if self.at_least is None else self.at_least) <= (
            low if other.at_least is None else other.at_least
        ) and (high if self.at_most is None else self.at_most) >= (high if other.at_most is None else other.at_most)


class ShareRange(Range):
    """A range of shares from 0 to 1 (not percentages); both ends are included."""

    at_least: float | None = Field(default=None, ge=0, le=1)
    at_most: float | None = Field(default=None, ge=0, le=1)


class CountRange(Range):
    """A range of counts; both ends are included."""

    at_least: float | None = Field(default=None, ge=0)
    at_most: float | None = Field(default=None, ge=0)


class When(Strict):
    """Conditions, all of which must hold; for "or" write two rules. A list of names means any of them, but of `tags`
    and `needs` all.

    `model` is the name that the request asks for. A rule without it takes only requests for `auto`: a request that
    names a model is routed by rules with that name in `model`, or answered by that model if no such rule matches.
    """

    difficulty: ShareRange | None = None
    uncertainty: ShareRange | None = None
    input_tokens: CountRange | None = None
    tags: Names | None = None
    needs: Annotated[list[Need], Field(min_length=1)] | None = None
    team: Names | None = None
    project: Names | None = None
    key: Names | None = None
    operation: Annotated[list[Operation], Field(min_length=1)] | None = None
    model: Annotated[list[Name], Field(min_length=1), AfterValidator(_unique)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "When":
        if not self.model_fields_set:
            raise ValueError("is empty; leave `when` out for the last rule")
        return self

    @cached_property
    def conditions(self) -> Mapping[str, Range | Sequence[str]]:
        """The conditions that are given."""
        return {name: given for name, given in self if given is not None}


class Choose(Strict):
    """Which models may answer, and which of them is preferred.

    `from` is a list of model names, or `any`, `hosted` or `local`. Candidates beyond a `min_` or `max_` limit, or below
    the share `keep_quality` of the best candidate's predicted quality, are dropped. If none is left, `if_none` decides:
    `best_quality` takes the one of highest predicted quality within `max_cost_usd` (the cheapest, if none is within),
    `refuse` refuses the request. `quality_share` is kept on average over the rule's traffic, not on every prompt (see
    docs/rules.md). `explore` is the share of requests that try another kept model, as long as `explore_usd_per_day`
    allows; with `explore_min_quality`, also one below `min_quality`, down to this predicted quality.
    """

    from_: Names | Literal["any", "hosted", "local"] = Field(alias="from")
    by: Literal["expected_cost", "quality", "order"] = "expected_cost"
    min_quality: float | None = Field(default=None, ge=0, le=1)
    keep_quality: float | None = Field(default=None, gt=0, le=1)
    quality_share: float | None = Field(default=None, gt=0, le=1)
    max_cost_usd: float | None = Field(default=None, gt=0)
    max_time_to_first_token_seconds: float | None = Field(default=None, gt=0)
    if_none: Literal["best_quality", "refuse"] = "best_quality"
    explore: float = Field(default=0.0, ge=0, le=0.5)
    explore_min_quality: float | None = Field(default=None, ge=0, le=1)
    explore_usd_per_day: Decimal | None = Field(default=None, ge=0, max_digits=24)

    @model_validator(mode="after")
    def _explores(self) -> "Choose":
        for name in ("explore_min_quality", "explore_usd_per_day"):
            if getattr(self, name) is not None and not self.explore:
                raise ValueError(f"{name} has no effect without `explore`, the share of requests to explore")
        if self.explore_min_quality is not None and self.explore_min_quality >= (self.min_quality or 0.0):
            raise ValueError("explore_min_quality has no effect unless it is below min_quality")
        return self

    @cached_property
    def exploring(self) -> "Choose":
        """The same with the limits of what exploration may try."""
        return self.model_copy(update={"min_quality": self.explore_min_quality})

    @cached_property
    def explore_pico_usd_per_day(self) -> int | None:
        return None if self.explore_usd_per_day is None else _whole_pico_usd(self.explore_usd_per_day)

    @cached_property
    def max_cost_pico_usd(self) -> int | None:
        return None if self.max_cost_usd is None else _whole_pico_usd(Decimal(str(self.max_cost_usd)))

    @cached_property
    def has_limits(self) -> bool:
        """Whether it drops candidates because of their own figures."""
        return any((self.min_quality, self.max_cost_usd, self.max_time_to_first_token_seconds))


class Verify(Strict):
    """Checks that an answer must pass before it is returned; see docs/rules.md.

    `format`: it is complete and not empty, and is the JSON or tool call that was asked for, if any. `min_mean_logprob`:
    the least mean log-probability of its tokens; an answer without log-probabilities fails.
    """

    format: bool = True
    min_mean_logprob: float | None = Field(default=None, le=0)

    @model_validator(mode="after")
    def _verifies_something(self) -> "Verify":
        if not self.format and self.min_mean_logprob is None:
            raise ValueError("verifies nothing: leave `format` on or give min_mean_logprob")
        return self


class Cascade(Strict):
    """Ask the model that `choose` prefers and verify its answer; if it fails, ask the first of `escalate_to` that can
    serve."""

    escalate_to: Names
    verify: Verify = Verify()


class Terms(msgspec.Struct, frozen=True):
    """What every decision reads of its rule, as a field of a validated model costs ten times as much to read.

    A rule that `keeps_all` drops no model because of its figures. `first_token_seconds` is the limit.
    """

    name: str
    from_: tuple[str, ...] | Literal["any", "hosted", "local"]
    by: Literal["expected_cost", "quality", "order"]
    keeps_all: bool
    first_token_seconds: float | None
    explore: float
    cascade: Cascade | None


class Rule(Strict):
    """One rule of the routing table. With `cache_seconds`, identical requests of a tenant share an answer that long."""

    name: Name
    when: When | None = None
    choose: Choose
    cascade: Cascade | None = None
    cache_seconds: int | None = Field(default=None, ge=1, le=30 * 86_400)

    @cached_property
    def target_name(self) -> str | None:
        """The key of its calibrated threshold; it contains a hash, so that a changed rule starts uncalibrated."""
        if self.choose.quality_share is None:
            return None
        return f"{self.name}-{hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]}"

    @cached_property
    def terms(self) -> Terms:
        choose = self.choose
        from_, seconds = choose.from_, choose.max_time_to_first_token_seconds
        keeps_all = not (choose.has_limits or choose.keep_quality or choose.quality_share)
        named = from_ if isinstance(from_, str) else tuple(from_)
        return Terms(self.name, named, choose.by, keeps_all, seconds, choose.explore, self.cascade)


class ModelSpec(Strict):
    """One catalogue model: where it runs, what it can do, and what its quality is predicted from (`head`, `benchmarks`
    or `ability`: the first that is given)."""

    backend: Name
    upstream_model: str = Field(min_length=1, max_length=200)
    context_window: int = Field(gt=0)
    supports: list[Ability] = Field(default_factory=lambda: ["streaming"])
    priced_as: str | None = None
    head: str | None = None
    benchmarks: dict[str, Annotated[float, Field(ge=0, le=1)]] | None = None
    ability: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _does_one_thing(self) -> "ModelSpec":
        if len(self.supports) > 1 and (only := self.specialty) is not None:
            raise ValueError(f"a model for {only} does nothing else here: write supports: [{only}]")
        return self

    @property
    def specialty(self) -> Specialty | None:
        """What it does instead of writing text."""
        return specialty_of(self.supports)


def specialty_of(supports: Collection[str]) -> Specialty | None:
    return next((one for one in SPECIALTIES.values() if one in supports), None)


class RulesDocument(Strict):
    """A rules file."""

    version: Literal[1]
    models: dict[Name, ModelSpec] = Field(default_factory=dict)
    rules: list[Rule] = Field(min_length=1)


def rules_json_schema() -> dict[str, object]:
    """The published JSON schema of a rules file, for editors."""
    schema = RulesDocument.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Breakeven rules"}
