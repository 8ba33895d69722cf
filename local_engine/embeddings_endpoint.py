"""`POST /v1/embeddings`: parse, encode in a thread, answer in OpenAI's shape."""

import asyncio
import base64
import time
from typing import Any, Literal

import msgspec
import numpy as np

from local_engine.encoder import SentenceEncoder
from local_engine.errors import InvalidRequest
from local_engine.openai_protocol import parse_body

MAX_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """OpenAI's body; inputs are texts."""

    input: str | list[str]
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


_DECODER = msgspec.json.Decoder(EmbeddingRequest)


async def answer_embeddings(encoder: SentenceEncoder, body: bytes) -> dict[str, Any]:
    """Raises InvalidRequest that names the parameter."""
    request = parse_body(_DECODER, body)
    texts = [request.input] if isinstance(request.input, str) else request.input
    if not texts or len(texts) > MAX_INPUTS or not all(texts):
        raise InvalidRequest(f"input is one to {MAX_INPUTS} non-empty strings.", parameter="input")
    if request.dimensions not in (None, encoder.dimensions):
        raise InvalidRequest(f"This model's vectors have {encoder.dimensions} dimensions.", parameter="dimensions")
    began = time.perf_counter()
    embedded = await asyncio.to_thread(encoder.encode, texts)
    seconds = time.perf_counter() - began
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, request.encoding_format)}
        for index, vector in enumerate(embedded.vectors)
    ]
    return {
        "object": "list",
        "model": encoder.name,
        "data": data,
        "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
        "x_breakeven": {"gpu_seconds": seconds, "queue_seconds": 0.0},
    }


def _written(vector: list[float], form: str) -> list[float] | str:
    return vector if form == "float" else base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()
