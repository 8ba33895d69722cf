"""How much of a usage was audio and images is in its entry, so that a later price can be told from it."""

import pytest

from backends.protocol import Chunk
from backends.usage import Usage
from gateway.ledger.entry import MediaTokens, Status
from gateway.request.metering import Meter
from gateway.request.settlement import Outcome, settle_entry
from tests.builders import make_candidate
from tests.unit.gateway.ledger.builders import make_intent


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        (Usage(9, output_tokens=3), MediaTokens()),
        (Usage(9, output_tokens=3, audio_output_tokens=2), MediaTokens(0, 2, 0)),
        (Usage(9, output_tokens=3, audio_input_tokens=4, image_input_tokens=5), MediaTokens(4, 0, 5)),
    ],
)
def test_audio_and_images_are_kept(usage: Usage, kept: MediaTokens) -> None:
    meter = Meter(started_at=0.0)
    meter.observe(Chunk(b"", usage=usage), 1.0)
    entry = settle_entry(make_intent(), meter, Outcome(Status.completed, 200, make_candidate(), (), 1.0))
    assert entry.media_tokens == kept
