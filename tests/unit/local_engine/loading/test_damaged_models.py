"""Model files that are truncated, overwritten or of another shape: each is reported by name, and no other error
escapes."""

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.assembly import load_model
from local_engine.errors import EngineError, ModelUnavailable, ModelUnsupported
from local_engine.loading.gguf_loader import load_gguf
from local_engine.loading.safetensors_loader import load_safetensors
from tests.unit.local_engine.tiny_models import YARN_ROPE, make_model, write_folder, write_gguf

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


def test_a_file_that_is_cut_off_while_it_loads_is_a_clear_error(tmp_path: Path) -> None:
    """Both were mapped: the first look at what was cut off ended the process with SIGBUS."""
    model, gguf_file = make_model("llama"), tmp_path / "tiny.gguf"
    loaded = {
        "tiny.gguf": load_gguf(write_gguf(model, gguf_file, "llama", Kind.F32)),
        "model.safetensors": load_safetensors(write_folder(model, tmp_path)),
    }
    for name, one in loaded.items():
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ModelUnavailable, match=f"{name} is damaged, or was cut off meanwhile"):
            one.weights.tensor("model.norm.weight")


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    """The last was taken without a word; another reader may take the first."""
    file = write_folder(make_model("llama"), tmp_path) / "model.safetensors"
    raw = file.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    doubled = b'{"model.norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},' + raw[9 : 8 + size]
    file.write_bytes(len(doubled).to_bytes(8, "little") + doubled + raw[8 + size :])
    with pytest.raises(ModelUnavailable, match=r"model\.safetensors .*two of its tensors.* have one name"):
        load_safetensors(tmp_path)


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


def test_a_tensor_in_two_files_of_a_folder_is_a_clear_error(tmp_path: Path) -> None:
    """The file last in order used to win, without a word."""
    folder = write_folder(make_model("llama"), tmp_path)
    save_file({"model.norm.weight": torch.zeros(64)}, folder / "old.safetensors")
    with pytest.raises(ModelUnavailable, match=r"model\.norm\.weight twice, in model.* and old\.safetensors"):
        load_safetensors(folder)


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("tokenizer_config.json", '{"chat_template": "{% if %}"}', "chat template"),
        ("tokenizer_config.json", "[1]", "tokenizer_config.json"),
        ("config.json", "[1]", "config.json"),
        ("config.json", "[" * 100_000, "config.json"),
        ("chat_template.jinja", f"{{{{ {'(' * 5_000}1{')' * 5_000} }}}}", "chat template"),
        ("chat_template.jinja", "{% for a in b %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("chat_template.jinja", "{{ " + "9" * 5_000 + " }}", "chat template cannot be read"),
        ("chat_template.jinja", "{{ a }}" * 50_000, "chat template is longer than"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../model.safetensors"}}', "not a file in its folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "/dev/stdin"}}', "not a file in its folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "\\ud800"}}', "not a whole safetensors file"),
        ("generation_config.json", '{"eos_token_id": "end"}', "wrong type"),
    ],
)
def test_a_json_file_of_another_shape_is_a_clear_error(tmp_path: Path, file: str, text: str, named: str) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    (folder / file).write_text(text)
    with pytest.raises(ModelUnavailable, match=named):
        load_safetensors(folder)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////9h"}),
        (
            "post_processor",
            {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}]}
            | {"pair": [], "special_tokens": {}},
        ),
    ],
)
def test_a_tokenizer_that_the_library_panics_at_is_a_clear_error(
    tmp_path: Path, part: str, value: dict[str, Any]
) -> None:
    file = write_folder(make_model("llama"), tmp_path) / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {part: value}))
    with pytest.raises(ModelUnavailable, match=r"tokenizer\.json is damaged"):
        load_safetensors(tmp_path)


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("mistral-window", "vocab_size", 10**400),
        ("mistral-window", "sliding_window", -1),
        ("mistral-window", "rope_parameters", YARN_ROPE | {"rope_theta": 1.0}),
        ("mistral-window", "rope_parameters", YARN_ROPE | {"beta_fast": math.nan}),
        ("mistral-window", "rope_parameters", YARN_ROPE | {"attention_factor": math.inf}),
        ("granite", "attention_multiplier", math.nan),
        ("phi3-short", "hidden_size", 1 << 32),
        ("qwen3-moe-mixed", "moe_intermediate_size", 10**400),
        ("gemma3", "rope_parameters", {"sliding_attention": {"rope_theta": math.nan}}),
    ],
)
def test_a_size_of_no_model_is_a_clear_error(tmp_path: Path, family: str, field: str, value: Any) -> None:
    file = write_folder(make_model(family), tmp_path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {field: value}))
    with pytest.raises(ModelUnavailable, match="no model"):
        load_model(tmp_path)


SINKS = {"model.layers.0.self_attn.sinks": torch.ones(4)}


@pytest.mark.parametrize(
    ("added", "left_out", "named"),
    [
        (SINKS, "", "sinks"),
        ({"model.layers.1.input_layernorm.bias": torch.ones(64)}, "", r"1\.input_layernorm\.bias"),
        ({"model.layers.2.mlp.up_proj.weight": torch.ones(96, 64)}, "", r"2\.mlp\.up_proj\.weight"),
        ({}, "model.layers.0.self_attn.k_proj.bias", r"0\.self_attn\.q_proj\.bias, model.*v_proj\.bias"),
        ({}, "lm_head.weight", "no tensor lm_head"),
    ],
)
def test_tensors_that_would_be_left_out_of_a_folder_are_named(
    tmp_path: Path, added: dict[str, torch.Tensor], left_out: str, named: str
) -> None:
    """They used to be ignored, and the native decoder read beyond the end of a bias that was too short."""
    file = write_folder(make_model("llama-biases"), tmp_path) / "model.safetensors"
    tensors = load_file(file) | added
    tensors.pop(left_out, None)
    save_file(tensors, file)
    with pytest.raises(ModelUnsupported, match=named):
        load_model(tmp_path).weights.tensor("lm_head.weight")


def test_a_tensor_of_no_values_is_a_clear_error(tmp_path: Path) -> None:
    file = write_folder(make_model("llama"), tmp_path) / "model.safetensors"
    save_file(load_file(file) | {"model.norm.weight": torch.zeros(0)}, file)
    with pytest.raises(ModelUnavailable, match=r"model\.norm\.weight is 0 and"):
        load_model(tmp_path).weights.tensor("model.norm.weight")


def test_an_alignment_that_is_no_number_is_a_clear_error(tmp_path: Path) -> None:
    key, value = b"general.alignment", b"wide"
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    (tmp_path / "m.gguf").write_bytes(head)
    with pytest.raises(ModelUnavailable, match=r"general\.alignment"):
        load_gguf(tmp_path / "m.gguf")


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


EMPTY_STRINGS = gguf_text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 23)
TWICE = (gguf_text(b"a") + struct.pack("<IB", 0, 1)) * 2


@pytest.mark.parametrize(
    ("counts", "rest", "named"),
    [
        ((0, 1), EMPTY_STRINGS, "arrays hold more than"),
        ((0, 1 << 22), b"", "fields, above"),
        ((1 << 22, 0), b"", "tensors and"),
        ((0, 2), TWICE, "one name"),
        ((0, 1), gguf_text(b"a") + struct.pack("<IQ", 8, 1 << 28), "header has more than"),
    ],
)
def test_a_header_of_no_model_is_refused_before_it_is_read(
    tmp_path: Path, counts: tuple[int, int], rest: bytes, named: str
) -> None:
    """100 MB of empty strings took ten seconds; 100 MB of tensors half a minute and 1.8 GB."""
    with (tmp_path / "m.gguf").open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, *counts) + rest)
        file.truncate(1 << 29)  # a hole: nothing is stored
    with pytest.raises(ModelUnavailable, match=named):
        load_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("family", ["gemma3", "smollm3"])
def test_layers_beyond_counting_are_refused_before_they_are_listed(tmp_path: Path, family: str) -> None:
    file = write_folder(make_model(family), tmp_path) / "config.json"
    raw = json.loads(file.read_bytes()) | {"num_hidden_layers": 1 << 40}
    file.write_text(json.dumps({key: value for key, value in raw.items() if key != "layer_types"}))
    with pytest.raises(ModelUnavailable, match="1099511627776 layers"):
        load_model(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_folder_file_of_no_model_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    """100 MB of tensors' names took seven seconds and a gigabyte."""
    with (write_folder(make_model("llama"), tmp_path) / name).open("wb") as file:
        file.write(struct.pack("<Q", 99_000_000))
        file.truncate(100_000_000)  # a hole: nothing is stored
    with pytest.raises(ModelUnavailable, match=f"{name}.* 33554432"):
        load_safetensors(tmp_path)
