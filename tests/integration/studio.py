"""A gateway in front of one provider with a model of every kind, for the tests of images and sound."""

import json
from dataclasses import replace
from typing import Any

from gateway.pricing.catalogue import ModelPrices
from gateway.routing.snapshot import Candidate
from tests.builders import make_candidate, make_prices
from tests.scripted_provider import Raw

JSON = {"content-type": "application/json"}


FREE = replace(make_prices(0, 0), source="by the piece")


TOKENS = {"input_tokens": 14, "output_tokens": 50, "total_tokens": 64}


def model(name: str, ability: str, prices: ModelPrices | None) -> Candidate:
    return make_candidate(name, backend="one", supports=frozenset({ability}), prices=prices)


MODELS = [
    model("draws", "images", make_prices(5, 30, image_input=8_000_000, image_output=40_000_000)),
    model("draws-by-the-piece", "images", replace(FREE, per_image_pico_usd=2 * 10**10)),
    model("speaks", "speech", make_prices(0.6, 10, audio_output=12_000_000)),
    model("speaks-by-character", "speech", replace(FREE, per_character_pico_usd=15 * 10**6)),
    model("listens", "transcription", replace(FREE, per_audio_second_pico_usd=10**8)),
    model("listens-by-token", "transcription", make_prices(2.5, 10, audio_input=6_000_000)),
    model("judges", "moderation", FREE),
    make_candidate("writes", backend="one"),
]


def answered(document: object) -> Raw:
    return Raw((json.dumps(document).encode(),), headers=JSON)


def events(*fields: dict[str, Any]) -> Raw:
    return Raw(tuple(f"data: {json.dumps(one)}\n\n".encode() for one in fields))
