"""What the native reader leaves to the Python definition, and which artefacts it rejects."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import astuple

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
    """Counts texts that are left to Python."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.encoder, self.traits = PLAIN.encoder, PLAIN.traits

    def project(self, text: str) -> Projection:
        self.texts.append(text)
        return PLAIN.project(text)


def test_only_what_unfolds_beyond_its_room_is_left_to_python() -> None:
    plain: Any = Counting()
    native = NativeProjector(LIBRARY, ARTEFACT, plain)
    outside = "a " * 400 + "ü" * 9 + " b" * 400
    for text in ("", "  ", TEXT, TEXT * 9, "\x00\x1f\x7f", outside, "“quoted”", "\ud800", "한" * 2000, "😀" * 2000):
        native.project(text)
    assert plain.texts == []
    left = ["\ufdfa" * 400]  # each of which becomes eighteen characters
    for text in left:
        native.project(text)
    assert plain.texts == left


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "Wie groß ist der Mond?\nA. ½ so groß…\nB) “früher” – 5\xa0km\n(C. naïve Œuvres\u2028D. no option",
        "ΟΔΥΣΣΕΥΣ ΣΑΣ. Σ 'Σ' ΑΣ'Α Α.Σ\nA.Σ\nB:ΑΣ’ Σ",  # sigmas that end a word, and options on their own
        "İstanbul ISPARTA ı ß ẞ ŉ ǰ ΐ ﬁn ﬃ K Å",
        "e\u0301 e\u0327\u0301 e\u0301\u0327 \u0301 a\u200b\u0301 か\u3099 ｶﾞ น้ำ ก็ क्षि ক্ষো שָׁלוֹם مُحَمَّد",
        "하늘이 왜 \u1112\u1161\u11ab 각\u11a8 파란가요？ 你好，世界。 ㈜ ℃ ㍿ ﷺ ①②③ ",
        "A. ב\u05b0\u0591 one\nB. ב\u0591\u05b0 one",  # one word, written in two orders
        "A. \ufc5e\u064b one\nB. \u064b\u064c\u0651 one",  # likewise, after a ligature
        "٣٤.٥ १२,५ 1.٣ 5\u03086 ٣.\nA. ٣\nB. ፩ 𝟘 ².",
        "👩\u200d👩\u200d👧 ❤\ufe0f 🏴\U000e0067\U000e007f 𝐀𐐀 𠮷野家 \U0010ffff",
        "a\x85b\u1680c\u2029d.\u2028 E!\x85 \x1c\x00é \ud800x\udfff \ufeff",
        "ö" * 41 + " größenwahnsinniger каждый stanisław ##ович",
        "Σ." * 500,
        "\u0327\u0301" * 500,
        "각" * 1000,
    ],
)
def test_a_text_of_any_script_has_the_features_that_are_defined(text: str) -> None:
    plain: Any = Counting()
    require_equal(NativeProjector(LIBRARY, ARTEFACT, plain), text)
    assert plain.texts == []


def test_texts_of_many_scripts_have_the_features_that_are_defined() -> None:
    draw = random.Random(7)
    native = NativeProjector(LIBRARY, ARTEFACT, PLAIN)
    blocks = [range(start, start + 128) for start in (*range(0, 0x3400, 128), *range(0xA000, 0x20000, 128), 0xE0000)]
    joints = ("", "", "", " ", "\n", ". ", ",", "\nA. ", "Σ", "\u0301", "\u0327", "5")
    for _ in range(600):
        few = draw.choices(blocks, k=draw.randint(1, 3))
        size = draw.choice((2, 10, 60))
        require_equal(native, "".join(chr(draw.choice(draw.choice(few))) + draw.choice(joints) for _ in range(size)))


def require_equal(native: NativeProjector, text: str) -> None:
    """Requires hand-made features to be bitwise equal, and the rest up to rounding."""
    found, plain = native.project(text), PLAIN.project(text)
    vector, defined = np.asarray(found.vector), np.asarray(plain.vector)
    np.testing.assert_array_equal(vector[:HAND], defined[:HAND], repr(text))
    np.testing.assert_allclose(vector, defined, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(astuple(found)[:4], astuple(plain)[:4], rtol=1e-4, atol=1e-5)
    assert found.is_readable == plain.is_readable


@pytest.mark.parametrize("name", ["token_vectors", "centre", "trait_weights", "covariance"])
def test_a_tensor_of_another_shape_is_refused_before_it_is_read(name: str) -> None:
    other: Artefact = replace(ARTEFACT, tensors={**ARTEFACT.tensors, name: ARTEFACT.tensors[name][:-1]})
    with pytest.raises(ValueError, match="shape"):
        NativeProjector(LIBRARY, other, PLAIN)


def test_a_vocabulary_with_longer_pieces_than_the_table_holds_is_refused() -> None:
    pieces = [*ARTEFACT.pieces[:-1], "x" * 24]
    with pytest.raises(ValueError, match="another shape"):
        NativeProjector(LIBRARY, replace(ARTEFACT, pieces=pieces), PLAIN)
