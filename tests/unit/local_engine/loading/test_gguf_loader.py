"""Each family and quantisation from a tiny GGUF file: greedy ids as in transformers, or a precise error."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from local_engine.assembly import assemble, build_engine
from local_engine.errors import ModelUnavailable, ModelUnsupported
from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.gguf_loader import QUANTISATIONS, dequantise, load_gguf
from local_engine.sampling.sampling_params import Constraint
from tests.unit.local_engine.loading.answers import SMALL, answer, assert_same
from tests.unit.local_engine.tiny_models import make_model, write_gguf

Kind = gguf.GGMLQuantizationType


@pytest.mark.parametrize(
    ("family", "architecture"),
    [
        ("llama", "llama"),
        ("llama-biases", "llama"),
        ("llama3-rope", "llama"),
        ("qwen2", "qwen2"),
        ("yarn-rope", "qwen3"),
        ("early-yarn-rope", "qwen3"),
        ("smollm3", "smollm3"),
        ("phi3", "phi3"),
        ("phi3-short", "phi3"),
        ("phi3-long", "phi3"),
        ("granite", "granite"),
        ("olmo2", "olmo2"),
        ("gemma3", "gemma3"),
        ("mixtral", "llama"),
        ("qwen3-moe", "qwen3moe"),
    ],
)
def test_a_gguf_file_answers_as_transformers_does(tmp_path: Path, family: str, architecture: str) -> None:
    """For llama the writer interleaves the rotary rows as llama.cpp does, which the loader must undo."""
    model = make_model(family)
    path = write_gguf(model, tmp_path / "tiny.gguf", architecture, Kind.F32)
    engine = build_engine(path, SMALL)
    assert_same(engine, model)
    # Indexed in advance: for the first schema the vocabulary is not indexed again.
    engine.tokenizer.fast = cast("Any", None)
    engine.constraints.check(Constraint("regex", "a+"))


@pytest.mark.parametrize("name", ["attn_factor", "yarn_attn_factor", "yarn_ext_factor"])
def test_yarn_with_weights_of_its_own_is_named(tmp_path: Path, name: str) -> None:
    path = write_gguf(
        make_model("yarn-rope"), tmp_path / "tiny.gguf", "qwen3", Kind.F32, extra={f"qwen3.rope.scaling.{name}": 0.5}
    )
    with pytest.raises(ModelUnsupported, match="yarn"):
        load_gguf(path)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1])
def test_a_quantised_file_answers_as_transformers_on_its_dequantised_weights(tmp_path: Path, kind: Kind) -> None:
    model = make_model("llama")
    path = write_gguf(model, tmp_path / "tiny.gguf", "llama", kind)
    loaded = load_gguf(path)
    assert loaded.stored == {Kind.Q8_0: "int8", Kind.Q4_0: "int4", Kind.Q4_1: "int4"}.get(kind)
    model.load_state_dict({name: loaded.weights.tensor(name) for name in model.state_dict()})
    assert_same(assemble(loaded, SMALL), model)


@pytest.mark.parametrize(
    ("kind", "held"), [(Kind.F16, 2.0), (Kind.BF16, 2.0), (Kind.Q8_0, 1.25), (Kind.Q5_0, 1.25), (Kind.Q4_1, 0.75)]
)
def test_the_native_decoder_answers_from_what_a_file_holds(tmp_path: Path, kind: Kind, held: float) -> None:
    """Rows of queries and keys must be reordered, and their scales with them."""
    model = make_model("mistral", head_dim=64)
    loaded = load_gguf(write_gguf(model, tmp_path / "tiny.gguf", "llama", kind))
    assert loaded.bytes_per_weight == held
    model.load_state_dict({name: loaded.weights.tensor(name) for name in model.state_dict()})
    assert_same(assemble(loaded, SMALL), model)


@pytest.mark.parametrize(
    ("family", "architecture"),
    [("mixtral", "llama"), ("qwen3-moe", "qwen3moe"), ("gemma3", "gemma3"), ("phi3-wide", "phi3")],
)
@pytest.mark.parametrize("kind", [Kind.Q8_0, Kind.Q4_0])
def test_the_native_decoder_and_torch_answer_alike_from_few_bits(
    tmp_path: Path, family: str, architecture: str, kind: Kind
) -> None:
    """Including stacked experts, which are one tensor in the file."""
    path = write_gguf(make_model(family, head_dim=64), tmp_path / "tiny.gguf", architecture, kind)
    ids, logprobs = answer(assemble(load_gguf(path), SMALL))
    in_torch, theirs = answer(assemble(load_gguf(path), replace(SMALL, block_size=8, kv_blocks=64)))
    assert ids == in_torch
    assert logprobs == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize("name", sorted(QUANTISATIONS))
def test_every_quantisation_that_we_claim_is_dequantised(name: str) -> None:
    kind = Kind[name]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    raw = np.random.default_rng(1).integers(0, 60, (3, 2 * block_bytes), dtype=np.uint8)
    values = dequantise(GgufTensor("t", (3, 2 * block), kind, raw))
    assert values.shape == (3, 2 * block)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert np.abs(values).max() > 0


def test_a_model_in_several_files_is_read_from_any_of_them(tmp_path: Path) -> None:
    model = make_model("llama", head_dim=64)
    write_gguf(model, tmp_path / "Tiny.Q8_0.gguf", "llama", Kind.F32, tensors_a_file=8)
    paths = sorted(tmp_path.glob("*.gguf"))
    assert [path.name for path in paths] == [f"Tiny.Q8_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    assert load_gguf(paths[0]).config.name == "tiny"
    for path in paths:
        assert_same(assemble(load_gguf(path), SMALL), model)
    renamed = paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelUnavailable, match="is one of 3 parts of a model: keep their names"):
        load_gguf(renamed)
    with pytest.raises(ModelUnavailable, match="00001-of-00003"):
        load_gguf(paths[1])


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.ffn_gate_inp.weight",
        "output.bias",
        "blk.1.attn_norm.bias",
        "blk.0.attn_q_norm.weight",
        "blk.2.attn_q.weight",
        "blk.0.attn_k.bias",
    ],
)
def test_tensors_that_would_be_left_out_are_named(tmp_path: Path, name: str) -> None:
    path = write_gguf(
        make_model("llama"), tmp_path / "t.gguf", "llama", Kind.F32, added={name: np.ones(4, dtype=np.float32)}
    )
    with pytest.raises(ModelUnsupported, match=f"t.gguf holds {name}, which a model of its type"):
        load_gguf(path)


@pytest.mark.parametrize("name", ["rope.scaling.factor", "rope.scale_linear"])
def test_a_factor_without_a_rule_is_linear(tmp_path: Path, name: str) -> None:
    model = make_model("linear-rope")
    assert_same(
        assemble(
            load_gguf(write_gguf(model, tmp_path / "t.gguf", "llama", Kind.F32, extra={f"llama.{name}": 4.0})), SMALL
        ),
        model,
    )


def test_another_architecture_is_named(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "other.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelUnsupported, match="mamba"):
        load_gguf(tmp_path / "other.gguf")


@pytest.mark.parametrize(
    ("architecture", "pattern", "window", "sliding"),
    [
        ("llama", None, 256, 11),
        ("llama", [True, True], 256, 11),
        ("llama", [True, False], 11, 0),
        ("qwen2", None, 11, 0),
        ("qwen2", [True, True], 256, 11),
    ],
)
def test_a_gguf_files_window(
    tmp_path: Path, architecture: str, pattern: list[bool] | None, window: int, sliding: int
) -> None:
    model = make_model("llama" if architecture == "llama" else "qwen2")
    path = write_gguf(model, tmp_path / "t.gguf", architecture, Kind.F32, sliding_window=11, sliding_pattern=pattern)
    config = load_gguf(path).config
    assert (config.context_window, config.sliding_window) == (window, sliding)


@pytest.mark.parametrize("head_size", [32, 64])
def test_a_gguf_file_with_a_window_answers_as_transformers_does(tmp_path: Path, head_size: int) -> None:
    """Models with heads of 64 run in the native decoder, if there is one."""
    model = make_model("mistral-window", head_dim=head_size)
    assert_same(
        build_engine(write_gguf(model, tmp_path / "t.gguf", "llama", Kind.F32, sliding_window=11), SMALL), model
    )


@pytest.mark.parametrize("head_count", [1, 2, 3, 6, 8])
def test_a_gguf_file_that_says_other_heads_is_a_clear_error(tmp_path: Path, head_count: int) -> None:
    path = write_gguf(make_model("llama"), tmp_path / "tiny.gguf", "llama", Kind.Q4_0)
    raw = path.read_bytes()
    key = b"llama.attention.head_count" + (4).to_bytes(4, "little")
    assert raw.count(key) == 1
    path.write_bytes(raw.replace(key + (4).to_bytes(4, "little"), key + head_count.to_bytes(4, "little")))
    with pytest.raises(ModelUnavailable, match="damaged"):
        build_engine(path, SMALL)


@pytest.mark.parametrize(
    ("family", "architecture", "extra"),
    [
        ("gemma3", "gemma3", {"gemma3.final_logit_softcapping": 30.0}),
        ("olmo2", "olmo2", {"olmo2.attention.sliding_window": 11}),
        ("llama", "llama", {"llama.rope.dimension_count": 8}),
    ],
)
def test_what_a_gguf_file_says_and_is_not_computed_is_named(
    tmp_path: Path, family: str, architecture: str, extra: dict[str, float]
) -> None:
    path = write_gguf(make_model(family), tmp_path / "tiny.gguf", architecture, Kind.F32, extra=extra)
    with pytest.raises(ModelUnsupported, match=r"caps its logits|OLMo 3|rotates 8 of the"):
        load_gguf(path)
