"""Each family and quantisation, from tiny files: logits and greedy ids as in transformers, or a reasoned refusal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES
from safetensors.torch import load_file, save_file

from local_engine.assembly import Engine, assemble, build_engine, without_idle_window
from local_engine.config import EngineConfig
from local_engine.errors import DoesNotFit, EngineError, ModelUnavailable, ModelUnsupported
from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.gguf_loader import QUANTISATIONS, dequantise, load_gguf
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.request import Request
from local_engine.sampling.sampling_params import Constraint, SamplingParams
from tests.unit.local_engine.tiny_models import LONGROPE, PreTrainedModel, make_model, write_folder, write_gguf

SMALL = EngineConfig(kv_blocks=32, context_window=128, max_tokens_per_step=24)
PROMPT = [7, 80, 3, 200, 5, 5, 91, 14, 33, 2, 150, 77, 8, 9, 10, 11, 64, 32, 16, 8, 4, 2, 1, 0, 250, 128, 99, 98]
Kind = gguf.GGMLQuantizationType


def answer(engine: Engine) -> tuple[list[int], list[float]]:
    """Greedy ids and their log-probabilities; the prompt takes two chunks."""
    request = Request("r", list(PROMPT), SamplingParams(temperature=0.0, max_tokens=12, logprobs=0))
    engine.core.add(request)
    logprobs: list[float] = []
    while engine.core.has_work:
        for delta in engine.core.step().deltas:
            logprobs += [entry.logprob for entry in delta.logprobs]
    return request.output_token_ids, logprobs


def assert_same(engine: Engine, model: PreTrainedModel) -> None:
    ids, logprobs = answer(engine)
    with torch.inference_mode():
        theirs = model(torch.tensor([PROMPT + ids[:-1]])).logits[0, len(PROMPT) - 1 :].log_softmax(-1)
    assert ids == theirs.argmax(-1).tolist()
    assert logprobs == pytest.approx(theirs.max(-1).values.tolist(), abs=1e-3)


OTHERS = [
    "olmo2",
    "gemma3",
    "mixtral",
    "qwen3-moe",
    "qwen3-moe-mixed",
    "smollm3",
    "phi3",
    "phi3-short",
    "phi3-long",
    "granite",
]


@pytest.mark.parametrize(
    "family", ["llama", "llama3-rope", "yarn-rope", "mistral", "mistral-window", "qwen2", "qwen3", *OTHERS]
)
def test_a_safetensors_folder_answers_as_transformers_does(tmp_path: Path, family: str) -> None:
    model = make_model(family)
    folder = write_folder(model, tmp_path, shard="50KB" if family == "llama" else "1GB")
    assert (family == "llama") == (folder / "model.safetensors.index.json").exists()
    loaded = load_safetensors(folder)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("naïve 😀")) == "naïve 😀"
    assert loaded.tokenizer.eos_token_ids == {257}
    assert loaded.tokenizer.render_chat([{"role": "user", "content": "hi"}]) == "user:hi"
    assert_same(assemble(loaded, SMALL), model)


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
    """For llama the writer interleaves the rotary rows as llama.cpp does; the loader must undo exactly that."""
    model = make_model(family)
    path = write_gguf(model, tmp_path / "tiny.gguf", architecture, Kind.F32)
    engine = build_engine(path, SMALL)
    assert_same(engine, model)
    # Indexed while nobody waits: for the first schema the vocabulary itself is not asked again.
    engine.tokenizer.fast = cast("Any", None)
    engine.constraints.check(Constraint("regex", "a+"))


@pytest.mark.parametrize("family", ["smollm3", "phi3", "granite", "olmo2", "gemma3-scaled", "mixtral"])
def test_neither_company_nor_cache_nor_drafts_change_a_familys_answer(tmp_path: Path, family: str) -> None:
    """Prompts in pieces of seven tokens, beginnings that are cached, and drafts of what was said before."""
    model = make_model(family)
    loaded = load_safetensors(write_folder(model, tmp_path))
    engine = assemble(loaded, replace(SMALL, max_tokens_per_step=7, speculative_tokens=3))
    prompts = [PROMPT, PROMPT[:20], [*PROMPT, *PROMPT, 5, 5], PROMPT[5:]]
    params = SamplingParams(temperature=0.0, max_tokens=10, logit_bias={7: 20.0, 80: 20.0})
    requests = [Request(str(number), list(ids), params) for number, ids in enumerate(prompts * 2)]
    # The second half begins when the first one's blocks are known.
    for half in (requests[:4], requests[4:]):
        for request in half:
            engine.core.add(request)
        while engine.core.has_work:
            engine.core.step()
    assert all(request.cached_prompt_tokens for request in requests[4:6])
    assert engine.core.accepted_tokens > 0
    for request in requests:
        with torch.inference_mode():
            theirs = model(torch.tensor([request.token_ids[:-1]])).logits[0, request.prompt_tokens - 1 :]
            theirs[:, [7, 80]] += 20.0
        assert request.output_token_ids == theirs.argmax(-1).tolist()


@pytest.mark.parametrize("family", ["gemma3-scaled", "mixtral"])
def test_a_request_alone_equals_itself_in_company_bitwise(tmp_path: Path, family: str) -> None:
    loaded = load_safetensors(write_folder(make_model(family), tmp_path))
    said: list[list[tuple[int, float]]] = []
    for company in (0, 3):
        engine = assemble(loaded, replace(SMALL, is_deterministic=True))
        params = SamplingParams(temperature=0.0, max_tokens=6, logprobs=0)
        request = Request("r", list(PROMPT), params)
        for other in range(company):
            engine.core.add(Request(str(other), PROMPT[other + 1 :], params))
        engine.core.add(request)
        said.append([])
        while engine.core.has_work:
            for delta in engine.core.step().deltas:
                if delta.request is request:
                    said[-1] += [(entry.token_id, entry.logprob) for entry in delta.logprobs]
    assert said[0] == said[1]


@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize(
    "family",
    [
        "llama-biases",
        "linear-rope",
        "yarn-rope",
        "early-yarn-rope",
        "mistral",
        "mistral-window",
        "qwen3",
        "gemma3-scaled",
        "mixtral",
        "qwen3-moe-mixed",
        "phi3-wide",
    ],
)
def test_the_native_decoder_answers_as_transformers_does(tmp_path: Path, family: str, head_size: int) -> None:
    """Heads of its sizes; where it does not run torch answers the same."""
    model = make_model(family, head_size)
    assert_same(assemble(load_safetensors(write_folder(model, tmp_path)), SMALL), model)


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
    """Queries and keys have rows to be put back, and with them their scales."""
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
    """A stack of experts' matrices is one tensor of the file."""
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
    "name", ["blk.0.ffn_gate_inp.weight", "output.bias", "blk.1.attn_norm.bias", "blk.0.attn_q_norm.weight"]
)
def test_tensors_that_would_be_left_out_are_named(tmp_path: Path, name: str) -> None:
    path = write_gguf(
        make_model("llama"), tmp_path / "t.gguf", "llama", Kind.F32, added={name: np.ones(4, dtype=np.float32)}
    )
    with pytest.raises(
        ModelUnsupported, match=f"t.gguf holds {name}, which a model of architecture llama has not here"
    ):
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


def test_what_does_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    loaded = load_safetensors(write_folder(make_model("llama"), tmp_path))
    with pytest.raises(DoesNotFit, match=r"GB for weights and \d+\.\d\d GB for 1000000000 KV-cache blocks"):
        assemble(loaded, EngineConfig(kv_blocks=10**9))


def test_a_window_that_no_context_outgrows_is_none(tmp_path: Path) -> None:
    loaded = load_safetensors(write_folder(make_model("mistral-window"), tmp_path))
    assert loaded.config.sliding_window == 11
    assert without_idle_window(loaded, SMALL).config.sliding_window == 11
    assert without_idle_window(loaded, EngineConfig(context_window=11)).config.sliding_window == 0


EVERY = {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 0, "layer_types": None}


@pytest.mark.parametrize(
    ("family", "settings", "window", "sliding"),
    [
        ("qwen2", EVERY, 256, 11),
        ("qwen2", EVERY | {"max_window_layers": 1}, 11, 0),
        ("qwen2", EVERY | {"max_window_layers": 2}, 256, 0),
        ("qwen3", EVERY | {"layer_types": ["full_attention", "sliding_attention"]}, 11, 0),
        ("qwen3", EVERY | {"layer_types": ["full_attention", "full_attention"]}, 256, 0),
        ("qwen2", EVERY | {"use_sliding_window": False}, 256, 0),
        ("qwen2", {"sliding_window": 11, "layer_types": None}, 256, 0),
        ("mistral", {"sliding_window": 11}, 256, 11),
        ("mistral", {"sliding_window": None}, 256, 0),
        ("llama", {"sliding_window": 11}, 256, 0),
    ],
)
def test_windows_are_read_as_transformers_reads_them(
    tmp_path: Path, family: str, settings: dict[str, Any], window: int, sliding: int
) -> None:
    """A model of mixed layers is served up to its window, where full attention is the same."""
    folder = write_folder(make_model(family), tmp_path)
    described = json.loads((folder / "config.json").read_text())
    for name in ("use_sliding_window", "max_window_layers", "layer_types"):
        described.pop(name, None)
    (folder / "config.json").write_text(json.dumps(described | settings))
    config = load_safetensors(folder).config
    assert (config.context_window, config.sliding_window) == (window, sliding)


def test_layers_of_another_kind_are_named(tmp_path: Path) -> None:
    folder = write_folder(make_model("qwen3"), tmp_path)
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(described | {"layer_types": ["full_attention", "chunked_attention"]})
    )
    with pytest.raises(ModelUnsupported, match="chunked_attention"):
        load_safetensors(folder)


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
    """Heads of 64 run in the native decoder, where there is one."""
    model = make_model("mistral-window", head_dim=head_size)
    assert_same(
        build_engine(write_gguf(model, tmp_path / "t.gguf", "llama", Kind.F32, sliding_window=11), SMALL), model
    )


def change(path: Path, changes: dict[str, Any]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_attention_heads": 3},
        {"num_attention_heads": 0},
        {"num_key_value_heads": 3},
        {"num_key_value_heads": 4},
        {"head_dim": 17},
        {"vocab_size": 100},
        {"hidden_size": 32, "head_dim": 16},
        {"intermediate_size": 95},
        {"intermediate_size": 1e308},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 2**62},
        {"max_position_embeddings": 0},
        {"rope_parameters": {"rope_type": "linear", "factor": 0}},
        {"rope_parameters": [1]},
        {"hidden_size": "wide"},
        {"eos_token_id": "end"},
    ],
)
def test_a_configuration_of_another_model_is_a_clear_error(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A product over a tensor of another shape would read beyond its end."""
    folder = write_folder(make_model("llama"), tmp_path)
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", changes)
    with pytest.raises(EngineError):
        build_engine(folder, SMALL)


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
    ("changes", "named"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "part of each head"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "longrope"),
        ({"attn_logit_softcapping": 50.0}, "caps its attention's logits"),
        ({"final_logit_softcapping": 30.0, "clip_qkv": 8.0}, "caps its logits and clips its queries and keys"),
    ],
)
def test_what_would_be_computed_wrongly_is_named(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    change(folder / "config.json", changes)
    with pytest.raises(ModelUnsupported, match=named):
        load_safetensors(folder)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("phi3-short", {"rope_parameters": LONGROPE | {"long_factor": [1.0]}}),
        ("phi3", {"intermediate_size": 95}),
        ("phi3", {"num_key_value_heads": 4}),
        ("mixtral", {"num_experts_per_tok": 5}),
        ("mixtral", {"num_local_experts": 5}),
        ("granite", {"residual_multiplier": 0.0}),
        ("smollm3", {"no_rope_layers": [1, 0]}),
        ("gemma3", {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}),
        ("gemma3", {"layer_types": None, "sliding_window_pattern": 0}),
    ],
)
def test_a_variation_that_does_not_hold_together_is_a_clear_error(
    tmp_path: Path, family: str, changes: dict[str, Any]
) -> None:
    folder = write_folder(make_model(family), tmp_path)
    change(folder / "config.json", changes)
    with pytest.raises(EngineError):
        build_engine(folder, SMALL)


def test_a_matrix_that_is_missing_is_named_as_the_familys_files_name_it(tmp_path: Path) -> None:
    """Not as Mixtral's would, whose names are others."""
    folder = write_folder(make_model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.gate_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelUnsupported, match=r"no tensor model\.layers\.1\.mlp\.gate_proj\.weight"):
        build_engine(folder, SMALL)


@pytest.mark.parametrize(
    ("family", "architecture", "extra"),
    [
        ("gemma3", "gemma3", {"gemma3.final_logit_softcapping": 30.0}),
        ("olmo2", "olmo2", {"olmo2.attention.sliding_window": 11.0}),
        ("llama", "llama", {"llama.rope.dimension_count": 8.0}),
    ],
)
def test_what_a_gguf_file_says_and_is_not_computed_is_named(
    tmp_path: Path, family: str, architecture: str, extra: dict[str, float]
) -> None:
    path = write_gguf(make_model(family), tmp_path / "tiny.gguf", architecture, Kind.F32, extra=extra)
    with pytest.raises(ModelUnsupported, match=r"caps its logits|OLMo 3|Partial rotary"):
        load_gguf(path)


def test_longrope_is_served_up_to_its_original_window_and_the_start_says_how_far_it_goes(tmp_path: Path) -> None:
    folder = write_folder(make_model("phi3-short"), tmp_path)
    told: list[str] = []
    assert build_engine(folder, EngineConfig(kv_blocks=32), progress=told.append).context_window == 128
    assert any("up to 128 tokens" in line and "up to 256" in line for line in told)
    assert build_engine(folder, EngineConfig(kv_blocks=32, context_window=256)).context_window == 256


def test_the_text_of_a_gemma_that_reads_images_too_is_run(tmp_path: Path) -> None:
    """Its configuration is a part of another one, and leaves out what transformers has by default."""
    model = make_model("gemma3")
    folder = write_folder(model, tmp_path)
    text = json.loads((folder / "config.json").read_text())
    kinds = text.pop("layer_types")
    for name in ("rope_parameters", "tie_word_embeddings", "rms_norm_eps", "hidden_activation"):
        text.pop(name)
    old = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 10000.0}
    whole = {"model_type": "gemma3", "text_config": text | old, "eos_token_id": [257]}
    (folder / "config.json").write_text(json.dumps(whole))
    tensors = load_file(folder / "model.safetensors")
    save_file({f"language_model.{name}": tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    loaded = load_safetensors(folder)
    assert loaded.config.full_layers == {number for number, kind in enumerate(kinds) if kind == "full_attention"}
    assert_same(assemble(loaded, SMALL), model)


def test_frequencies_that_change_beyond_the_window_are_the_plain_ones_within_it(tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    folder = write_folder(make_model("llama"), tmp_path)
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    change(folder / "config.json", {"rope_parameters": rope})
    model = LlamaForCausalLM.from_pretrained(folder).eval()  # pyright: ignore[reportUnknownMemberType]
    loaded = load_safetensors(folder)
    assert loaded.config.context_window == 256
    assert_same(assemble(loaded, SMALL), model)


def test_conversations_with_tools_have_a_template_of_their_own(tmp_path: Path) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools {{ tools[0].name }}"}]
    change(folder / "tokenizer_config.json", {"chat_template": named})
    tokenizer = load_safetensors(folder).tokenizer
    hi = [{"role": "user", "content": "hi"}]
    assert tokenizer.render_chat(hi) == "plain"
    assert tokenizer.render_chat(hi, tools=[{"name": "f"}]) == "tools f"
