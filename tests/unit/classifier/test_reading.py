"""The data path reads and classifies like the slow definitions in plain_reading.py, for texts of every kind."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from classifier.artefact import read_artefact
from classifier.encoder import HAND
from classifier.features import FEATURE_NAMES
from classifier.item_response import ItemResponseClassifier
from classifier.lexicon import GROUPS, MARKS
from classifier.load import SHIPPED, build_book, build_encoder, build_projector, build_traits
from classifier.projection import PlainProjector
from classifier.protocol import Classification, Conversation, ModelProfile
from tests.unit.classifier import plain_reading

ARTEFACT = read_artefact(SHIPPED)
ENCODER = build_encoder(ARTEFACT)
HEADS = sorted(ARTEFACT.facts["model"]["heads"])[::7]
PLAIN = PlainProjector(ENCODER, build_traits(ARTEFACT))
PROJECTOR = build_projector(ARTEFACT, PLAIN.traits)  # the native one if there is a compiler
PROFILES = [ModelProfile(name, head=name) for name in HEADS]
CLASSIFIERS = [
    ItemResponseClassifier(projector, PLAIN.traits, build_book(ARTEFACT), PROFILES) for projector in (PROJECTOR, PLAIN)
]
TRIES = settings(max_examples=70)
# Not bitwise: numpy's libraries may sum in another order on another processor.
RTOL, ATOL = 1e-4, 1e-6

TERMS = sorted({word for words in GROUPS.values() for word in words.split()})
WORDS = st.one_of(
    st.sampled_from(TERMS),
    st.sampled_from(["The", "Paris", "NASA", "sourdough", "x", "i", "42", "3.5", "1,000", "$4", "f(x)", "don't"]),
    st.sampled_from(["Größe", "naïve", "İ5", "ΑΣ", "你好", "x\u0308", "\u0308", "５", "ﷺ", "😀", "a\u200bb"]),
    st.sampled_from([*"".join(MARKS.values()), "...", "e.g.", "```", "def f():", "import this"]),
    st.text(max_size=6),
)
BLANKS = st.sampled_from([" ", " ", " ", ". ", ", ", "? ", "\n", "\nA. ", "\n(B) ", "\n\tC: ", "  ", "\t", "\xa0", ""])
TEXTS = st.lists(st.tuples(WORDS, BLANKS), max_size=80).map(lambda parts: "".join(map("".join, parts)))


@TRIES
@given(TEXTS)
@example("")
@example("A. 5 cats\nB. 5 dogs\nC) cats, in Rome. And Berlin!")
@example("other words, and the " + "word " * 900)
@example("… " * 1000)
def test_a_prompt_is_read_as_defined(text: str) -> None:
    raw = ENCODER.measure(text)
    hand = plain_reading.hand_features(text, ENCODER.vocabulary)
    wrong = [name for name, ours, plain in zip(FEATURE_NAMES, raw, hand, strict=False) if ours != plain]
    assert not wrong
    pooled = plain_reading.pooled_tokens(text, ENCODER.vocabulary, ARTEFACT)
    np.testing.assert_allclose(raw[HAND:], pooled, rtol=RTOL, atol=ATOL)
    vector, plain = (np.asarray(one.project(text).vector) for one in (PROJECTOR, PLAIN))
    np.testing.assert_array_equal(vector[:HAND], plain[:HAND])
    np.testing.assert_allclose(vector[HAND:], plain[HAND:], rtol=RTOL, atol=1e-4)


@TRIES
@given(TEXTS)
@example("Say hello.")
@example("Prove that there are infinitely many primes. " * 40)
def test_a_prompt_is_classified_as_defined(text: str) -> None:
    for classifier in CLASSIFIERS:
        require_as_defined(classifier.classify(Conversation(text)), text)


def require_as_defined(answer: Classification, text: str) -> None:
    vector = plain_reading.standardised(text, ENCODER.vocabulary, ARTEFACT)
    if not any(map(str.isalnum, plain_reading.clean(plain_reading.cap(text)))):
        assert answer.uncertainty == 1.0
        return
    np.testing.assert_allclose(answer.difficulty, plain_reading.difficulty(vector, ARTEFACT), rtol=RTOL)
    found = [(one.mean, one.deviation) for one in answer.quality.values()]
    np.testing.assert_allclose(found, plain_reading.qualities(vector, ARTEFACT, HEADS), rtol=RTOL, atol=ATOL)
