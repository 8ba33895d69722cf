"""Builds a ready classifier from an artefact's files; reads the disk once, at start."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from classifier.adaptation import read_adaptation
from classifier.artefact import Artefact, ArtefactError, read_artefact
from classifier.encoder import Encoder
from classifier.item_response import ItemResponseClassifier
from classifier.lexicon import build_index
from classifier.native.native_projector import NativeProjector, load_reader
from classifier.profiles import Curve, CurveBook, FamilyPrior
from classifier.projection import PlainProjector, Projector, Traits
from classifier.protocol import Conversation
from classifier.words import Vocabulary

SHIPPED = Path(__file__).parent / "artefact"
PRIORS = Path(__file__).parent / "model_priors.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # parsing the priors took most of a book's load time


def load_artefact(path: Path | None = None) -> ItemResponseClassifier:
    """The shipped artefact, or the one in that folder, not yet bound to models. Raises ArtefactError."""
    folder = path or SHIPPED
    try:
        artefact = read_artefact(folder)
        traits = build_traits(artefact)
        classifier = ItemResponseClassifier(
            build_projector(artefact, traits),
            traits,
            build_book(artefact),
            adaptation=read_adaptation(artefact),
        )
        classifier.classify(Conversation("one prompt"))  # tensors of wrong shapes fail here, not at the first request
    except (LookupError, TypeError, ValueError) as error:
        raise ArtefactError(
            f"{folder} is not an artefact of this version ({type(error).__name__}: {error}): train it again"
        ) from error
    return classifier


def build_projector(artefact: Artefact, traits: Traits) -> Projector:
    """The native projector if it can be compiled, else the Python definition. Raises ValueError for wrong tensor
    shapes."""
    plain, library = PlainProjector(build_encoder(artefact), traits), load_reader()
    return plain if library is None else NativeProjector(library, artefact, plain)


def build_encoder(artefact: Artefact) -> Encoder:
    tensors = artefact.tensors
    return Encoder(
        Vocabulary(artefact.pieces, build_index()),
        tensors["token_vectors"],
        tensors["token_scale"],
        tensors["token_weights"],
        tensors["centre"],
        tensors["spread"],
    )


def build_traits(artefact: Artefact) -> Traits:
    tensors, facts = artefact.tensors, artefact.facts["model"]
    return Traits(
        tensors["trait_weights"],
        tensors["covariance"],
        float(facts["source_variance"]),
        tensors["knots_score"],
        tensors["knots_difficulty"],
        float(facts["level_share"]),
        tensors["length_weights"],
    )


def build_book(artefact: Artefact) -> CurveBook:
    facts: dict[str, Any] = artefact.facts["model"]
    priors: dict[str, Any] = yaml.load(PRIORS.read_text(encoding="utf-8"), Loader=LOADER)
    heads = {
        name: Curve(
            head["offset"], (head["slopes"][0], head["slopes"][1]), head["deviation"], head["log_tokens"], "head"
        )
        for name, head in facts["heads"].items()
    }
    families = [FamilyPrior(row["pattern"], row["ability"], row["output_tokens"]) for row in priors["families"]]
    return CurveBook(
        heads,
        families,
        np.asarray(artefact.tensors["reference"], dtype=np.float64),
        [tuple(row) for row in facts["slope_by_ability"]],
        {name: (row["at_ability_0_1"], row["at_ability_0_7"]) for name, row in priors["benchmarks"].items()},
        (facts["size_scale"][0], facts["size_scale"][1]),
        artefact.sha256,
    )
