"""A tokenizer that exhausts resources or crashes does so in a separate process, not in the engine's."""

import json
from pathlib import Path
from typing import Any

import pytest

from local_engine.errors import ModelUnavailable
from local_engine.loading.tried_tokenizer import try_tokenizer
from tests.unit.local_engine.tiny_models import byte_level

DOUBLES = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def write(folder: Path, normalizer: dict[str, Any] | None) -> Path:
    read = json.loads(byte_level().to_str()) | {"normalizer": normalizer}
    (folder / "tokenizer.json").write_text(json.dumps(read))
    return folder


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Sequence", "normalizers": [DOUBLES] * 30},
        # The library requests more memory than any machine has.
        {"type": "Precompiled", "precompiled_charsmap": "/////w=="},
    ],
)
def test_what_takes_the_machine_is_a_clear_error(tmp_path: Path, normalizer: dict[str, Any]) -> None:
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is damaged.* 128 MB of memory"):
        try_tokenizer(write(tmp_path, normalizer), memory_bytes=128 << 20)


def test_whatever_can_be_read_within_the_bounds_is_left_to_the_engine(tmp_path: Path) -> None:
    try_tokenizer(write(tmp_path, None), memory_bytes=256 << 20)


@pytest.mark.parametrize("text", ['{"nonsense": 1}', '{"model": {"type": "BPE"', None])
def test_what_is_no_tokenizer_is_left_to_the_engine_which_says_why(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    try_tokenizer(tmp_path)
