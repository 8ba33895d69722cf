"""`POST /v1/embeddings`: parses, encodes, and answers in OpenAI's format. Takes seconds: call it in a thread."""

import base64
import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from local_engine.encoder import SentenceEncoder
from local_engine.errors import InvalidRequest, NotOffered
from local_engine.server.openai_protocol import parse_body

MAX_INPUTS = 2048
MARKS = 2
"""Special tokens around each text."""


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """OpenAI's body; inputs are texts. Token ids are parsed only to be refused: they come from another model's
    tokenizer."""

    input: str | list[str | int | list[int]]
    model: str = ""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    # vLLM's: the first so many tokens, including special ones; -1: as many as the model reads.
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1)] | None = None


_DECODER = msgspec.json.Decoder(EmbeddingRequest)


def answer_embeddings(encoder: SentenceEncoder, body: bytes, chat_model: str = "") -> bytes:
    """JSON; any model name but the chat model's is accepted. Raises InvalidRequest naming the parameter."""
    request = parse_body(_DECODER, body)
    if request.model and request.model == chat_model != encoder.name:
        raise InvalidRequest(f"{chat_model} generates text; request embeddings from {encoder.name}.", parameter="model")
    inputs = [request.input] if isinstance(request.input, str) else request.input
    texts = [text for text in inputs if isinstance(text, str)]
    if len(texts) < len(inputs):
        raise NotOffered(
            "input must be text: token ids would be another model's (LangChain: check_embedding_ctx_length=False).",
            parameter="input",
        )
    if not texts or len(texts) > MAX_INPUTS or not all(texts):
        raise InvalidRequest(f"input is one to {MAX_INPUTS} non-empty strings.", parameter="input")
    if request.dimensions not in (None, encoder.dimensions):
        raise NotOffered(f"This model's vectors have {encoder.dimensions} dimensions.", parameter="dimensions")
    began = time.perf_counter()
    embedded = encoder.encode(texts, _first(request.truncate_prompt_tokens, encoder))
    seconds = time.perf_counter() - began
    data = [
        {"object": "embedding", "index": index, "embedding": _written(vector, request.encoding_format)}
        for index, vector in enumerate(embedded.vectors)
    ]
    answer: dict[str, Any] = {
        "object": "list",
        "model": encoder.name,
        "data": data,
        "usage": {"prompt_tokens": embedded.tokens, "total_tokens": embedded.tokens},
        "x_breakeven": {"gpu_seconds": seconds, "queue_seconds": 0.0},
    }
    return msgspec.json.encode(answer)


def _first(asked: int | None, encoder: SentenceEncoder) -> int | None:
    if asked is not None and 0 <= asked <= MARKS:
        raise InvalidRequest(
            f"truncate_prompt_tokens includes {MARKS} special tokens; send -1, or a larger number.",
            parameter="truncate_prompt_tokens",
        )
    return encoder.context_window if asked == -1 else asked


def _written(vector: list[float], form: str | None) -> list[float] | str:
    return vector if form != "base64" else base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode()
