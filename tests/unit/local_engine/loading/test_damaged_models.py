"""Model files that are cut, overwritten or of another shape: each is told by its name, and nothing escapes."""

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from local_engine.errors import EngineError, ModelUnavailable
from local_engine.loading.gguf_loader import load_gguf
from local_engine.loading.safetensors_loader import load_safetensors
from tests.unit.local_engine.tiny_models import make_model, write_folder, write_gguf

Kind = gguf.GGMLQuantizationType


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def cut_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def wrong_magic(path: Path) -> None:
    path.write_bytes(b"GGML" + path.read_bytes()[4:])


def absurd_count(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + b"\xff" * 8 + raw[16:])


def no_rows(path: Path) -> None:
    raw, name = path.read_bytes(), b"blk.0.attn_norm.weight"
    at = raw.index(name) + len(name) + 4
    path.write_bytes(raw[:at] + bytes(8) + raw[at + 8 :])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, cut_header, wrong_magic, absurd_count, no_rows, empty])
def test_a_damaged_gguf_file_is_a_clear_error(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = write_gguf(make_model("llama"), tmp_path / "tiny.gguf", "llama", Kind.F32)
    damage(path)
    with pytest.raises(ModelUnavailable, match=r"tiny\.gguf"):
        load_gguf(path)


def test_random_damage_never_escapes_as_another_error(tmp_path: Path) -> None:
    path = write_gguf(make_model("llama"), tmp_path / "tiny.gguf", "llama", Kind.Q8_0)
    whole = path.read_bytes()
    random = np.random.default_rng(5)
    refused = 0
    for _ in range(200):
        raw = bytearray(whole)
        for at in random.integers(0, 6000, 4):
            raw[int(at)] = int(random.integers(0, 256))
        path.write_bytes(raw)
        try:
            load_gguf(path)
        except EngineError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("damaged", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_folder_is_a_clear_error(tmp_path: Path, damaged: str) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    truncate(folder / damaged)
    with pytest.raises(ModelUnavailable, match=damaged):
        load_safetensors(folder)


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_missing_file_is_a_clear_error(tmp_path: Path, missing: str) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    (folder / missing).unlink()
    with pytest.raises(ModelUnavailable):
        load_safetensors(folder)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "chat template"),
        ("tokenizer_config.json", "[1]", "tokenizer_config.json"),
        ("config.json", "[1]", "config.json"),
        ("config.json", "[" * 100_000, "config.json"),
        ("chat_template.jinja", f"{{{{ {'(' * 5_000}1{')' * 5_000} }}}}", "chat template"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../model.safetensors"}}', "no file of its folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "/dev/stdin"}}', "no file of its folder"),
        ("generation_config.json", '{"eos_token_id": "end"}', "wrong kind"),
    ],
)
def test_a_json_file_of_another_shape_is_a_clear_error(tmp_path: Path, file: str, text: str, named: str) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    (folder / file).write_text(text)
    with pytest.raises(ModelUnavailable, match=named):
        load_safetensors(folder)


def test_an_alignment_that_is_no_number_is_a_clear_error(tmp_path: Path) -> None:
    key, value = b"general.alignment", b"wide"
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    (tmp_path / "m.gguf").write_bytes(head)
    with pytest.raises(ModelUnavailable, match=r"general\.alignment"):
        load_gguf(tmp_path / "m.gguf")
