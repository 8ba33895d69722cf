"""What the native reader leaves to the definition, and what it refuses to be built on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from classifier.artefact import Artefact, read_artefact
from classifier.encoder import HAND
from classifier.load import SHIPPED, build_encoder, build_traits
from classifier.native.native_projector import NativeProjector, load_reader
from classifier.projection import PlainProjector, Projection

LIBRARY: Any = load_reader()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs a C++ compiler: install g++")
ARTEFACT = read_artefact(SHIPPED)
PLAIN = PlainProjector(build_encoder(ARTEFACT), build_traits(ARTEFACT))
TEXT = "In Rome, 3 of the 12 trains are late. How many are not?\nA. 9\nB. 12\n" * 9


class Counting:
    """Counts what is left to Python."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.encoder, self.traits = PLAIN.encoder, PLAIN.traits

    def project(self, text: str) -> Projection:
        self.texts.append(text)
        return PLAIN.project(text)


def test_only_what_is_not_ascii_within_the_cap_is_left_to_python() -> None:
    plain: Any = Counting()
    native = NativeProjector(LIBRARY, ARTEFACT, plain)
    outside = "a " * 400 + "ü" * 9 + " b" * 400
    for text in ("", "  ", TEXT, TEXT * 9, "\x00\x1f\x7f", outside):
        native.project(text)
    assert plain.texts == []
    left = ["Wie groß ist der Mond?", "“quoted”", "\ud800"]
    for text in left:
        native.project(text)
    assert plain.texts == left


def test_hand_features_are_equal_to_the_bit_and_the_rest_is_near() -> None:
    native, plain = NativeProjector(LIBRARY, ARTEFACT, PLAIN).project(TEXT), PLAIN.project(TEXT)
    vector, defined = np.asarray(native.vector), np.asarray(plain.vector)
    np.testing.assert_array_equal(vector[:HAND], defined[:HAND])
    np.testing.assert_allclose(vector, defined, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(native[:4], plain[:4], rtol=1e-4)


@pytest.mark.parametrize("name", ["token_vectors", "centre", "trait_weights", "covariance"])
def test_a_tensor_of_another_shape_is_refused_before_it_is_read(name: str) -> None:
    other: Artefact = replace(ARTEFACT, tensors={**ARTEFACT.tensors, name: ARTEFACT.tensors[name][:-1]})
    with pytest.raises(ValueError, match="shape"):
        NativeProjector(LIBRARY, other, PLAIN)


def test_a_vocabulary_with_longer_pieces_than_the_table_holds_is_refused() -> None:
    pieces = [*ARTEFACT.pieces[:-1], "x" * 24]
    with pytest.raises(ValueError, match="another shape"):
        NativeProjector(LIBRARY, replace(ARTEFACT, pieces=pieces), PLAIN)
