"""`breakeven calibrate`: the threshold that keeps a share of always-strong quality on your own graded prompts."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from classifier.artefact import ArtefactError
from classifier.batch import as_json
from classifier.labels import known_scores
from classifier.load import load_artefact
from classifier.metrics import Array, brier, calibration_error
from classifier.names import canonical
from classifier.prompt_lines import PromptFileError, read_prompt_lines
from classifier.protocol import Conversation, ModelProfile
from classifier.threshold import Cut, choose_cut, cost_quality_curve
from gateway.cli.classify import require_two_models
from gateway.cli.options import AsJson
from gateway.errors import ConfigurationError
from gateway.extras import install_command


def command(
    labels: Annotated[Path, typer.Option(help="Graded prompts: `prompt`, `scores {model: 0..1}`, not trained on.")],
    pair: Annotated[tuple[str, str], typer.Option(help="STRONG WEAK, as named in the scores.")],
    quality: Annotated[float, typer.Option(help="Share of always-strong quality to keep.")] = 0.95,
    artefact: Annotated[Path | None, typer.Option(help="Folder of a trained or adapted artefact.")] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder for plots of the cost-quality curve and of reliability.")
    ] = None,
    json_output: AsJson = False,
) -> None:
    """Choose the threshold with the fewest strong calls that keeps the quality in 95 % of resamples."""
    require_two_models(pair)
    try:
        loaded = load_artefact(artefact)
        bound = loaded.bind([ModelProfile(name) for name in pair])
        prompts, strong, weak = _graded(labels, pair)
        is_adapted = all(canonical(name) in loaded.adapted_to for name in pair)
        found = [as_json(bound.classify(Conversation(prompt)), pair, is_adapted=is_adapted) for prompt in prompts]
        scores = np.array([row["route_score"] for row in found])
        cut = choose_cut(scores, strong, weak, target=quality)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or labels}: {error.strerror}") from error
    except (ArtefactError, PromptFileError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    predicted = np.array([row["quality"][pair[1]] for row in found])
    report = {
        "prompts": len(prompts),
        "ranked_by": "quality gap" if is_adapted else "difficulty",
        "threshold": in_four_decimals(cut),
        "strong_share": cut.strong_share,
        "kept_quality": cut.kept_quality,
        "kept_quality_low": cut.kept_quality_low,
        "weak_brier": brier(predicted, weak),
        "weak_calibration_error": calibration_error(predicted, weak),
        "classifier_version": bound.version,
    }
    if plots:
        _draw(plots, scores, strong, weak, predicted)
    if json_output:
        print(json.dumps(report))
        return
    print(
        f"Send prompts with a {report['ranked_by']} of at least {report['threshold']:.4f} to {pair[0]}: "
        f"{cut.strong_share:.0%} of calls keep {cut.kept_quality:.1%} of its quality "
        f"(at least {cut.kept_quality_low:.1%} in 95 % of resamples of {len(prompts):,} prompts)."
    )


def in_four_decimals(cut: Cut) -> float:
    """The threshold for scores as they are and as the gateway rounds them: rounded down, so that nothing at the cut
    falls below it, or above both if nothing is to be sent."""
    return (math.floor(cut.threshold * 10_000) + (2 if cut.strong_share == 0 else 0)) / 10_000


def _graded(labels: Path, pair: tuple[str, str]) -> tuple[list[str], Array, Array]:
    """The prompts that both were graded on, and the scores of each. Raises ConfigurationError where there are none."""
    strong, weak = map(canonical, pair)
    graded = [
        (row["prompt"], known_scores(row["scores"], f"{labels}:{line}"))
        for line, row in read_prompt_lines(labels)
        if isinstance(row.get("scores"), dict)
    ]
    both = [(prompt, scores) for prompt, scores in graded if strong in scores and weak in scores]
    if not both:
        counts = Counter(name for _, scores in graded for name in scores)
        known = ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items())) or "no model"
        raise ConfigurationError(f"{labels} grades no prompt for both {pair[0]} and {pair[1]}; it grades {known}")
    of_strong, of_weak = (np.array([scores[name] for _, scores in both]) for name in (strong, weak))
    return [prompt for prompt, _ in both], of_strong, of_weak


def _draw(folder: Path, scores: Array, strong: Array, weak: Array, predicted: Array) -> None:
    try:
        from classifier.plots import draw_cost_quality, draw_reliability  # the train extra is not needed to serve
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"plots need {error.name}: {install_command('train')}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw_cost_quality(cost_quality_curve(scores, strong, weak), folder / "cost-quality.png")
        draw_reliability(predicted, weak, folder / "reliability.png")
    except OSError as error:
        raise ConfigurationError(f"--plots {folder}: {error.strerror}") from error
