"""Fields of model files with any value: each is loaded, or refused by a sentence that names the file."""

import json
import math
import re
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_engine.assembly import load_model
from local_engine.errors import EngineError, ModelUnavailable
from local_engine.loading.field_types import GGUF, ConfigJson, Quantisation, Rope, TokenizerSettings
from tests.unit.local_engine.tiny_models import ALPHABET, make_model, write_folder

SIZES = st.sampled_from([0, 1, 2, 3, 4, 16, 64, 96, 256, 260, 1 << 20, 1 << 31, 1 << 62, -1])
FLOATS = st.sampled_from([0.0, 0.5, 1.0, -1.0, 8.0, 1e-30, 1e30, math.nan, math.inf])
TEXTS = st.sampled_from(["", "x", "yarn", "linear", "llama3", "longrope", "full_attention", "gpt2", "llama", "\ud800"])
ONES = SIZES | FLOATS | TEXTS | st.booleans() | st.none() | st.just(10**400)
ROPES = st.dictionaries(st.sampled_from(sorted(Rope.__annotations__)), ONES, max_size=4)
QUANTISED = dict.fromkeys(Quantisation.__annotations__, ONES)
VALUES = (
    ONES
    | st.lists(ONES, max_size=6)
    | ROPES
    | st.fixed_dictionaries(
        {"quant_method": st.sampled_from(["fp8", "awq", "gptq", "compressed-tensors"])}, optional=QUANTISED
    )
    | st.fixed_dictionaries({}, optional={"full_attention": ROPES, "sliding_attention": ROPES, "name": ONES})
)
FIELDS = [
    *(("config.json", name) for name in ConfigJson.__annotations__),
    *(("tokenizer_config.json", name) for name in TokenizerSettings.__annotations__),
    *(("generation_config.json", "eos_token_id"), ("special_tokens_map.json", "eos_token")),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    families = ("llama3-rope", "gemma3", "phi3-short", "granite", "smollm3", "qwen3-moe")
    return [write_folder(make_model(family), tmp_path_factory.mktemp(family)) for family in families]


@cache
def plain(file: Path) -> dict[str, Any]:
    return json.loads(file.read_bytes()) if file.exists() else {}


def answer(model: Path) -> str:
    """The refusal, or the name of what was read."""
    try:
        load_model(model)
    except EngineError as error:
        return str(error)
    return model.name


@given(which=st.integers(0, 5), field=st.sampled_from(FIELDS), value=VALUES)
def test_any_value_in_a_folders_json_is_read_or_refused(
    folders: list[Path], which: int, field: tuple[str, str], value: Any
) -> None:
    folder, (name, key) = folders[which], field
    before = plain(folder / name)
    (folder / name).write_text(json.dumps(before | {key: value}))
    try:
        assert folder.name in answer(folder)
    finally:
        (folder / name).write_text(json.dumps(before))


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", {"hidden_size": "64"}, r"config\.json .* `\$\.hidden_size`"),
        ("config.json", {"quantization_config": 2}, r"config\.json .* `\$\.quantization_config`"),
        ("config.json", {"rope_parameters": {"factor": [8]}}, r"config\.json .* `\$\.rope_parameters\.factor`"),
        ("config.json", {"bos_token_id": 1 << 40}, r"config\.json .* `\$\.bos_token_id`"),
        ("tokenizer_config.json", {"chat_template": [{"name": 5}]}, r"_config\.json .* `\$\.chat_template\[0\]\.name`"),
    ],
)
def test_a_value_of_the_wrong_type_is_told_by_its_field(
    tmp_path: Path, folders: list[Path], file: str, change: dict[str, Any], named: str
) -> None:
    for path in folders[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / file).write_text(json.dumps(plain(tmp_path / file) | change))
    with pytest.raises(ModelUnavailable, match=named):
        load_model(tmp_path)


def test_a_template_that_is_no_text_is_told_by_its_file(tmp_path: Path, folders: list[Path]) -> None:
    for path in folders[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelUnavailable, match=r"chat_template\.jinja"):
        load_model(tmp_path)


TINY: dict[str, Any] = {
    "general.architecture": "phi3",
    "phi3.context_length": 256,
    "phi3.embedding_length": 64,
    "phi3.block_count": 2,
    "phi3.feed_forward_length": 96,
    "phi3.attention.head_count": 4,
    "phi3.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*ALPHABET, "<s>", "ab"],
    "tokenizer.ggml.token_type": [1] * 256 + [3, 1],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.scores": [0.5] * 258,
}
KINDS = {bool: (7, "?"), int: (11, "q"), float: (12, "d")}


def encoded(value: Any) -> bytes:
    """A value after its type."""
    if isinstance(value, str):
        raw = value.encode(errors="replace")
        return struct.pack("<IQ", 8, len(raw)) + raw
    if isinstance(value, list):
        parts = [encoded(part) for part in value] or [encoded(0)]
        alike = [part[4:] for part in parts if part[:4] == parts[0][:4]][: len(value)]
        return struct.pack("<I4sQ", 9, parts[0][:4], len(alike)) + b"".join(alike)
    kind, code = KINDS[type(value)]
    return struct.pack(f"<I{code}", kind, value)


def write_header(path: Path, fields: dict[str, Any], *tensors: tuple[str, list[int], int, int]) -> Path:
    """A GGUF file whose tensors are given by name, dimensions, type and offset, and 4 kB for their content."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    for name, value in fields.items():
        head += encoded(name)[4:] + encoded(value)
    for name, shape, kind, offset in tensors:
        head += encoded(name)[4:] + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(4096))
    return path


PIECES = SIZES | FLOATS | TEXTS | st.booleans()
TENSORS = st.tuples(
    st.sampled_from(["rope_freqs.weight", "rope_factors_short.weight", "token_embd.weight", "blk.0.attn_q.weight", ""]),
    st.lists(st.sampled_from([0, 1, 8, 32, 64, 1 << 40]), max_size=4),
    st.sampled_from([0, 1, 2, 8, 12, 25, 30, 99]),
    st.sampled_from([0, 31, 4096, 1 << 63]),
)


@given(
    st.sampled_from(["phi3", "llama", "gemma3", "granite", "qwen3moe", "smollm3", "olmo2"]),
    st.dictionaries(st.sampled_from(sorted(GGUF)), PIECES | st.lists(PIECES, max_size=260), max_size=2),
    st.lists(TENSORS, max_size=1),
)
def test_any_value_in_a_gguf_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, family: str, changed: dict[str, Any], tensors: list[Any]
) -> None:
    fields = {name.replace("phi3.", f"{family}."): value for name, value in TINY.items()}
    own = {name if name.startswith("tokenizer") else f"{family}.{name}": value for name, value in changed.items()}
    path = tmp_path_factory.getbasetemp() / "hostile.gguf"
    write_header(path, fields | {"general.architecture": family} | own, *tensors)
    assert re.search("hostile|GGUF", answer(path))


@pytest.mark.parametrize(
    ("change", "tensors", "named"),
    [
        ({"phi3.attention.head_count": [4, 4]}, [], "phi3.attention.head_count"),
        ({"tokenizer.ggml.tokens": [1, 2]}, [], "tokenizer.ggml.tokens"),
        ({"phi3.rope.freq_base": "wide"}, [], "phi3.rope.freq_base"),
        ({}, [("rope_freqs.weight", [8, 8], 0, 0)], "rope_freqs.weight is no list"),
        ({}, [("rope_freqs.weight", [8], 25, 0)], "rope_freqs.weight is no list"),
        ({}, [("blk.0.attn_q.weight", [], 0, 0)], "'blk.0.attn_q.weight' has 0 dimensions"),
        ({}, [("output_norm.weight", [64], 0, 128), ("rope_freqs.weight", [33], 0, 0)], "freqs.* and .*norm.* overlap"),
    ],
)
def test_a_field_of_the_wrong_type_is_told_by_its_name(
    tmp_path: Path, change: dict[str, Any], tensors: list[Any], named: str
) -> None:
    with pytest.raises(ModelUnavailable, match=rf"m\.gguf .*{named}"):
        load_model(write_header(tmp_path / "m.gguf", TINY | change, *tensors))
