"""`breakeven calibrate`: the threshold that keeps a share of always-strong quality on your own graded prompts."""

import json
import math
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer

from classifier.artefact import ArtefactError
from classifier.batch import as_json
from classifier.load import load_artefact
from classifier.metrics import Array, brier, calibration_error
from classifier.names import canonical
from classifier.prompt_lines import PromptFileError, read_prompt_lines
from classifier.protocol import Conversation, ModelProfile
from classifier.threshold import choose_cut, cost_quality_curve
from gateway.errors import ConfigurationError
from gateway.extras import install_command


def command(
    labels: Annotated[Path, typer.Option(help="Graded prompts: `prompt`, `scores {model: 0..1}`, not trained on.")],
    pair: Annotated[tuple[str, str], typer.Option(help="STRONG WEAK, as named in the scores.")],
    quality: Annotated[float, typer.Option(help="Share of always-strong quality to keep.")] = 0.95,
    artefact: Annotated[Path | None, typer.Option(help="Folder of a trained or adapted artefact.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for the cost-quality curve and the reliability.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose the threshold with the fewest strong calls that keeps the quality in 95 % of resamples."""
    try:
        loaded = load_artefact(artefact)
        bound = loaded.bind([ModelProfile(name) for name in pair])
        rows = [row for _, row in read_prompt_lines(labels) if _has_both(row.get("scores"), pair)]
        is_adapted = all(canonical(name) in loaded.adapted_to for name in pair)
        found = [as_json(bound.classify(Conversation(row["prompt"])), pair, is_adapted=is_adapted) for row in rows]
        scores = np.array([row["route_score"] for row in found])
        strong, weak = (np.array([float(row["scores"][name]) for row in rows]) for name in pair)
        cut = choose_cut(scores, strong, weak, target=quality)
    except (ArtefactError, PromptFileError, OSError, ValueError) as error:
        raise ConfigurationError(str(error)) from error
    predicted = np.array([row["quality"][pair[1]] for row in found])
    report = {
        "prompts": len(rows),
        "ranked_by": "quality gap" if is_adapted else "difficulty",
        "threshold": cut.threshold,
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
        f"Send prompts with a {report['ranked_by']} of at least {cut.threshold:.4f} to {pair[0]}: "
        f"{cut.strong_share:.0%} of calls keep {cut.kept_quality:.1%} of its quality "
        f"(at least {cut.kept_quality_low:.1%} in 95 % of resamples of {len(rows):,} prompts)."
    )


def _has_both(scores: object, pair: tuple[str, str]) -> bool:
    """Whether both models were graded on the prompt; NaN and null are no grade."""
    known = cast("dict[str, object]", scores) if isinstance(scores, dict) else {}
    values = [known.get(name) for name in pair]
    return all(isinstance(value, (int, float)) and not math.isnan(value) for value in values)


def _draw(folder: Path, scores: Array, strong: Array, weak: Array, predicted: Array) -> None:
    try:
        from classifier.plots import draw_cost_quality, draw_reliability  # the train extra is not needed to serve
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"plots need {error.name}: {install_command('train')}") from error
    folder.mkdir(parents=True, exist_ok=True)
    draw_cost_quality(cost_quality_curve(scores, strong, weak), folder / "cost-quality.png")
    draw_reliability(predicted, weak, folder / "reliability.png")
