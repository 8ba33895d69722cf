"""Each family from a tiny folder: greedy ids as in transformers, or a precise error."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.assembly import assemble, build_engine, without_idle_window
from local_engine.config import EngineConfig
from local_engine.errors import DoesNotFit, EngineError, ModelUnsupported
from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from tests.unit.local_engine.loading.answers import PROMPT, SMALL, assert_same
from tests.unit.local_engine.tiny_models import LONGROPE, make_model, write_folder

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


@pytest.mark.parametrize("family", ["smollm3", "phi3", "granite", "olmo2", "gemma3-scaled", "mixtral"])
def test_neither_company_nor_cache_nor_drafts_change_a_familys_answer(tmp_path: Path, family: str) -> None:
    """With chunks of seven tokens, cached prefixes, and drafts from earlier text."""
    model = make_model(family)
    loaded = load_safetensors(write_folder(model, tmp_path))
    engine = assemble(loaded, replace(SMALL, max_tokens_per_step=7, speculative_tokens=3))
    prompts = [PROMPT, PROMPT[:20], [*PROMPT, *PROMPT, 5, 5], PROMPT[5:]]
    params = SamplingParams(temperature=0.0, max_tokens=10, logit_bias={7: 20.0, 80: 20.0})
    requests = [Request(str(number), list(ids), params) for number, ids in enumerate(prompts * 2)]
    # The second half starts when the first half's blocks are cached.
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
    """With supported head sizes; where it cannot run, torch gives the same answers."""
    model = make_model(family, head_size)
    assert_same(assemble(load_safetensors(write_folder(model, tmp_path)), SMALL), model)


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
        ("qwen2", EVERY | {"use_sliding_window": False, "max_window_layers": None}, 256, 0),
        ("qwen2", {"sliding_window": 11, "layer_types": None}, 256, 0),
        ("mistral", {"sliding_window": 11}, 256, 11),
        ("mistral", {"sliding_window": 11, "layer_types": ["full_attention", "full_attention"]}, 256, 0),
        ("phi3", {"sliding_window": 11, "layer_types": ["full_attention", "full_attention"]}, 256, 11),
        ("qwen3-moe", EVERY | {"max_window_layers": 28}, 256, 11),
        ("smollm3", EVERY, 11, 0),
        ("mistral", {"sliding_window": None}, 256, 0),
        ("llama", {"sliding_window": 11}, 256, 0),
    ],
)
def test_windows_are_read_as_transformers_reads_them(
    tmp_path: Path, family: str, settings: dict[str, Any], window: int, sliding: int
) -> None:
    """A model with mixed layers is served up to its window, within which full attention is equivalent."""
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
    """A product with a tensor of another shape would read beyond its end."""
    folder = write_folder(make_model("llama"), tmp_path)
    (folder / "generation_config.json").unlink()
    change(folder / "config.json", changes)
    with pytest.raises(EngineError):
        build_engine(folder, SMALL)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        # Its type, before the types of its fields.
        ({"model_type": "gemma3n_text", "intermediate_size": [96, 96]}, "is of type gemma3n_text"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "part of each head"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "by the kind of layer"),
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
    """Not by Mixtral's names, which differ."""
    folder = write_folder(make_model("llama"), tmp_path)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.gate_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelUnsupported, match=r"no tensor model\.layers\.1\.mlp\.gate_proj\.weight"):
        build_engine(folder, SMALL)


def test_longrope_is_served_up_to_its_original_window_and_the_start_says_how_far_it_goes(tmp_path: Path) -> None:
    folder = write_folder(make_model("phi3-short"), tmp_path)
    told: list[str] = []
    assert build_engine(folder, EngineConfig(kv_blocks=32), progress=told.append).context_window == 128
    assert any("up to 128 tokens" in line and "up to 256" in line for line in told)
    assert build_engine(folder, EngineConfig(kv_blocks=32, context_window=256)).context_window == 256


def test_a_window_is_no_longer_than_the_cache_and_the_start_says_so(tmp_path: Path) -> None:
    """A longer prompt was answered by a 500, and an answer that grew beyond the cache was lost."""
    folder = write_folder(make_model("llama"), tmp_path)
    told: list[str] = []
    assert build_engine(folder, EngineConfig(kv_blocks=5), progress=told.append).context_window == 80
    assert any("is served up to 80 tokens" in line for line in told)


def test_the_text_of_a_gemma_that_reads_images_too_is_run(tmp_path: Path) -> None:
    """Its configuration is nested in another one, and omits transformers' defaults."""
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


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        # Frequencies that change beyond the window are the plain ones within it.
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}}),
        # Added for longer texts to a file that has the newer field.
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("llama", {"tie_word_embeddings": True}),
        ("llama3-rope", {"original_max_position_embeddings": 32}),
        ("gemma3", {"rope_parameters": {"rope_type": "linear", "factor": 8.0}}),
    ],
)
def test_a_configuration_is_read_as_transformers_reads_it(tmp_path: Path, family: str, changes: dict[str, Any]) -> None:
    from transformers import AutoModelForCausalLM

    folder = write_folder(make_model(family), tmp_path)
    change(folder / "config.json", changes)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert_same(assemble(load_safetensors(folder), SMALL), model)


@pytest.mark.parametrize("is_list", [True, False])
def test_conversations_with_tools_have_a_template_of_their_own(tmp_path: Path, is_list: bool) -> None:
    folder = write_folder(make_model("llama"), tmp_path)
    named = {"default": "plain", "tool_use": "tools {{ tools[0].name }}"}
    listed = [{"name": name, "template": template} for name, template in named.items()]
    change(folder / "tokenizer_config.json", {"chat_template": listed if is_list else named})
    tokenizer = load_safetensors(folder).tokenizer
    hi = [{"role": "user", "content": "hi"}]
    assert tokenizer.render_chat(hi) == "plain"
    assert tokenizer.render_chat(hi, tools=[{"name": "f"}]) == "tools f"


def test_a_file_is_open_no_longer_once_its_model_is_loaded(tmp_path: Path) -> None:
    """A deleted one kept its room on the disk for as long as it was served."""
    engine = build_engine(write_folder(make_model("qwen3", 64), tmp_path), SMALL)
    opened = [path.resolve() for path in Path("/proc/self/fd").iterdir()]
    assert not [path for path in opened if path.is_relative_to(tmp_path.resolve())]
    assert engine.model.layers == 2


def test_a_file_rewritten_in_place_changes_nothing_that_was_read(tmp_path: Path) -> None:
    """Weights were the mapped file: the running model answered otherwise."""
    file = write_folder(make_model("llama"), tmp_path) / "model.safetensors"
    norm = load_safetensors(tmp_path).weights.tensor("model.norm.weight")
    read = norm.clone()
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        opened.write(bytes(file.stat().st_size // 2))
    assert norm.equal(read)
