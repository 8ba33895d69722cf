"""A catalogue model's response curve, from a trained head, public averages, a stated ability, or its name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from classifier.logits import logit, sigmoid
from classifier.names import billions_of_parameters, canonical, undated
from classifier.protocol import ModelProfile

FLOOR, CEILING = 0.005, 0.98
DEFAULT_ABILITY, DEFAULT_DEVIATION = 0.35, 1.2
STATED_DEVIATION, BENCHMARK_DEVIATION, FAMILY_DEVIATION, SIZE_DEVIATION = 0.3, 0.5, 0.6, 0.9
DEFAULT_OUTPUT_TOKENS = 300.0


@dataclass(frozen=True, slots=True)
class Curve:
    """P(good enough) = sigmoid(offset - slopes · traits); `deviation` is that of the offset, in logits."""

    offset: float
    slopes: tuple[float, float]
    deviation: float
    log_output_tokens: float
    origin: str


@dataclass(frozen=True, slots=True)
class FamilyPrior:
    """What a name implies about an ungraded model; `ability` is on the artefact's reference scale."""

    pattern: str
    ability: float
    output_tokens: float


@dataclass(frozen=True, slots=True)
class CurveBook:
    """Everything needed to turn a profile into a curve.

    `reference` holds the traits of a fixed sample of prompts: a model's ability is its mean quality over them.
    `slope_by_ability` are (ability, slope, slope) knots. `benchmark_scales` gives, per benchmark, the averages of
    models with ability 0.1 and 0.7. `size_scale` is (intercept, slope) of logit ability on log10 of 1e9 parameters.
    """

    heads: Mapping[str, Curve]
    families: Sequence[FamilyPrior]
    reference: NDArray[np.float64]
    slope_by_ability: Sequence[tuple[float, float, float]]
    benchmark_scales: Mapping[str, tuple[float, float]]
    size_scale: tuple[float, float]
    sha256: str


def resolve(profile: ModelProfile, book: CurveBook) -> Curve:
    """Uses the first of head, benchmarks, ability and name that is known. Which heads there are depends on the artefact
    in force, so one that this artefact lacks is no error."""
    if profile.head is not None:
        head = find_head(profile.head, book)
        if head is None:
            known = resolve(replace(profile, head=None), book)
            return replace(known, origin=f"no head {profile.head!r}: {known.origin}")
        return replace(head, origin=f"head {profile.head}")
    if profile.benchmarks:
        ability = ability_from_benchmarks(profile.benchmarks, book)
        if ability is not None:
            return curve_for(ability, BENCHMARK_DEVIATION, "public benchmark averages", book)
    if profile.ability is not None:
        return curve_for(profile.ability, STATED_DEVIATION, "stated ability", book)
    names = [profile.name, *([profile.upstream_model] if profile.upstream_model else [])]
    return by_name(names, book)


def find_head(name: str, book: CurveBook) -> Curve | None:
    wanted = canonical(name)
    if wanted in book.heads:
        return book.heads[wanted]
    dated = sorted(head for head in book.heads if undated(head) == undated(name))
    return book.heads[dated[-1]] if dated else None


def by_name(names: Sequence[str], book: CurveBook) -> Curve:
    """The first name with a head or a matching family, else the first that states a size, else a cautious default."""
    for name in names:
        known = find_head(name, book)
        if known is not None:
            return replace(known, origin=f"trained head of {canonical(name)}")
        family = next((row for row in book.families if fnmatchcase(canonical(name), row.pattern)), None)
        if family:
            curve = curve_for(family.ability, FAMILY_DEVIATION, f"family {family.pattern}", book)
            return replace(curve, log_output_tokens=math.log(family.output_tokens))
    size = next(filter(None, map(billions_of_parameters, names)), None)
    if size:
        intercept, slope = book.size_scale
        return curve_for(
            sigmoid(intercept + slope * math.log10(size)), SIZE_DEVIATION, f"size {size:g}e9 parameters", book
        )
    return curve_for(DEFAULT_ABILITY, DEFAULT_DEVIATION, "nothing is known: cautious default", book)


def ability_from_benchmarks(benchmarks: Mapping[str, float], book: CurveBook) -> float | None:
    """Mean, in logits, of what the known benchmarks imply; None if none is known."""
    low, high = logit(0.1), logit(0.7)
    logits: list[float] = []
    for name, average in benchmarks.items():
        scale = book.benchmark_scales.get(name.lower().replace("-", "_").replace(" ", "_"))
        if scale:
            bottom, top = (logit(one, FLOOR, CEILING) for one in scale)
            logits.append(low + (high - low) * (logit(average, FLOOR, CEILING) - bottom) / (top - bottom))
    return sigmoid(sum(logits) / len(logits)) if logits else None


def curve_for(ability: float, deviation: float, origin: str, book: CurveBook) -> Curve:
    """The curve with this mean over the reference prompts."""
    ability = min(max(ability, FLOOR), CEILING)
    knots = np.array(book.slope_by_ability)
    slopes = (
        float(np.interp(ability, knots[:, 0], knots[:, 1])),
        float(np.interp(ability, knots[:, 0], knots[:, 2])),
    )
    pull = book.reference @ np.array(slopes)
    low, high = -15.0, 15.0
    for _ in range(40):
        offset = (low + high) / 2.0
        below = float(np.mean(1.0 / (1.0 + np.exp(pull - offset)))) < ability
        low, high = (offset, high) if below else (low, offset)
    return Curve((low + high) / 2.0, slopes, deviation, math.log(DEFAULT_OUTPUT_TOKENS), origin)
