"""Predictions are kept once for models that are alike, and are the same as for each by itself."""

import msgspec
import pytest

from classifier.load import load_artefact
from classifier.online.correction import CorrectedClassifier, Correction
from classifier.predictions import Lengths, Places, Predictions, Qualities, rounded
from classifier.protocol import Conversation, ModelProfile

NAMES = ("gpt-4o", "azure/gpt-4o", "claude-opus-4-5", "nobody", "nobody-else", "a-model-9b", "another-9b")
SHIPPED = load_artefact()
BOUND = SHIPPED.bind([ModelProfile(name) for name in NAMES])
PROMPT = Conversation("Prove that there are infinitely many primes.", tool_count=1)
SHIFTS = {"nobody": (0.5, 0.2), "gpt-4o": (-0.5, 0.0), "azure/gpt-4o": (-0.5, 0.0)}


@pytest.mark.parametrize("correction", [None, Correction(SHIFTS)])
@pytest.mark.parametrize("prompt", [PROMPT, Conversation("")])
def test_each_model_has_what_is_predicted_for_it_alone(prompt: Conversation, correction: Correction | None) -> None:
    whole = CorrectedClassifier(BOUND, correction) if correction else BOUND
    found = whole.classify(prompt)
    packed = rounded(found.quality, found.output_tokens, dict.fromkeys(NAMES))
    assert packed is not None
    assert len(packed.shares) == (5 if correction else 4) < len(NAMES) == len(packed)
    for name in NAMES:
        alone = SHIPPED.bind([ModelProfile(name)])
        one = (CorrectedClassifier(alone, correction) if correction else alone).classify(prompt)
        assert (found.quality[name], found.output_tokens[name]) == (one.quality[name], one.output_tokens[name])
        assert packed[name] == packed.get(name) == packed.qualities_of([name])[0] == round(one.quality[name].mean, 4)
        assert packed.lengths_of([name])[0] == round(one.output_tokens[name], 1)
    assert dict(packed) == dict(packed.items()) == {name: packed[name] for name in NAMES}
    assert (packed.get("other"), packed.get("other", 0.5), packed.lengths_of(["other"])) == (None, 0.5, [None])


def test_a_record_has_them_as_they_were() -> None:
    found = BOUND.classify(PROMPT)
    packed = rounded(found.quality, found.output_tokens, dict.fromkeys(NAMES))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(packed), type=Predictions) == packed


@pytest.mark.parametrize("share", [float("nan"), float("inf")])
def test_what_is_no_number_or_for_other_models_is_not_packed(share: float) -> None:
    places = Places({"a": 0}, {"a": 0})
    quality, lengths = Qualities(places, [share], lambda: [0.1]), Lengths(places, [1.0])
    assert rounded(quality, lengths, {"a": None}) is None
    found = BOUND.classify(PROMPT)
    assert rounded(found.quality, found.output_tokens, dict.fromkeys(NAMES)) is not None
    assert rounded(found.quality, found.output_tokens, {"gpt-4o": None}) is None
    assert rounded(found.quality, dict(found.output_tokens), dict.fromkeys(NAMES)) is None
