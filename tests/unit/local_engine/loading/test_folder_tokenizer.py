"""A folder's tokenizer is read like in transformers: special tokens by its own settings, prompts not truncated."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer as FastTokenizer

from local_engine.loading.safetensors_loader import load_safetensors
from local_engine.request import Request
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampler import change_logits
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.server.chat import Model, prepare_completion
from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import PreTrainedModel, byte_level, make_model, write_folder

TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """A model whose config.json declares 256, `<s>`, as BOS and 257, `</s>`, as EOS."""
    return make_model("qwen2")


def write(model: PreTrainedModel, folder: Path, settings: dict[str, Any], file: str = "tokenizer_config.json") -> Path:
    write_folder(model, folder)
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    (folder / file).write_text(json.dumps(settings if file == "special_tokens_map.json" else kind | settings))
    return folder


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ({"bos_token": "</s>", "eos_token": "</s>"}, {257}),
        ({"bos_token": {"__type": "AddedToken", "content": "</s>", "special": True}, "eos_token": "<s>"}, {256, 257}),
        ({"bos_token": None, "eos_token": "</s>"}, {257}),
    ],
    ids=str,
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_templates_are_told_the_tokenizers_own_special_tokens(
    model: PreTrainedModel, tmp_path: Path, settings: dict[str, Any], ends: set[int], file: str
) -> None:
    """config.json may disagree: by it, DeepSeek-R1's distillations would begin with an end token."""
    from transformers import AutoTokenizer

    folder = write(model, tmp_path, settings, file)
    ours = load_safetensors(folder).tokenizer
    theirs: Any = AutoTokenizer.from_pretrained(folder)
    assert ours.render_chat(HI) == theirs.apply_chat_template(HI, tokenize=False)
    assert ours.encode_chat(HI) == theirs.apply_chat_template(HI, return_dict=False)
    assert ours.bos_token_id == theirs.bos_token_id
    assert ours.eos_token_ids == ends


def test_without_settings_the_configuration_says_them(model: PreTrainedModel, tmp_path: Path) -> None:
    ours = load_safetensors(write(model, tmp_path, {})).tokenizer
    assert ours.render_chat(HI) == "<s>hi</s>"
    assert (ours.bos_token_id, ours.eos_token_ids) == (256, {257})


def test_an_end_below_zero_is_none(model: PreTrainedModel, tmp_path: Path) -> None:
    ends = {"eos_token_id": [-1, 256]}
    (write(model, tmp_path, {}) / "generation_config.json").write_text(json.dumps(ends))
    assert load_safetensors(tmp_path).tokenizer.eos_token_ids == {256}


def test_what_training_left_in_a_tokenizer_neither_cuts_nor_fills_a_prompt(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    folder, text = write_folder(model, tmp_path), "a message longer than that"
    left = byte_level()
    left.enable_truncation(max_length=8)
    left.enable_padding(length=64, pad_id=0)
    left.save(str(folder / "tokenizer.json"))
    tokenizer = load_safetensors(folder).tokenizer
    assert tokenizer.encode(text) == byte_level().encode(text).ids
    assert len(tokenizer.encode_chat([{"role": "user", "content": f"<s>{text}"}])) == len(f"user:<s>{text}")


def test_an_end_that_the_model_cannot_draw_costs_nothing() -> None:
    params = SamplingParams(stop_token_ids=frozenset((257, 999)), min_tokens=2)
    banned = change_logits(torch.zeros(260), Request("r", [1], params), [], None)
    assert banned.isinf().nonzero().flatten().tolist() == [257]


def renumbered(token_id: int) -> Tokenizer:
    """A vocabulary with a token per byte, and `ab` with a much larger id."""
    raw = json.loads(byte_level().to_str())
    raw["model"]["vocab"]["ab"] = token_id
    raw["model"]["merges"] = [["a", "b"]]
    fast = FastTokenizer.from_str(json.dumps(raw))
    return Tokenizer(fast, chat_template=None, bos_token_id=None, eos_token_ids=[])


def test_ids_that_no_token_has_cost_the_others_nothing() -> None:
    tokenizer = renumbered(290)
    assert tokenizer.encode("cab") == [*tokenizer.encode("c"), 290]
    assert tokenizer.decode([290]) == "ab"
    assert tokenizer.decode([270]) == ""
    assert tokenizer.vocabulary_size == 291


def test_an_id_that_only_damage_explains_takes_no_memory() -> None:
    with pytest.raises(ValueError, match="2147483648"):
        renumbered(2**31)


def test_bad_words_that_the_model_cannot_draw_cost_nothing() -> None:
    """A token beyond the logits would fail the step for all requests in it."""
    tokenizer = renumbered(290)
    model = Model(tokenizer, ConstraintCompiler(tokenizer, 258), 128, 258)
    prepared = prepare_completion(b'{"prompt": "c", "bad_words": ["ab", "c"]}', model)
    assert prepared.choices[0].banned == ((99,), (32, 99))


def test_others_run_while_a_text_is_cut_into_tokens() -> None:
    """The library's own `encode` holds the GIL, for seconds if the text has some megabytes."""
    tokenizer = Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[])
    turns, is_over = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not is_over.wait(0.001):
            turns += 1

    counting = threading.Thread(target=count)
    counting.start()
    try:
        for cut in (tokenizer.encode, tokenizer.encode_with_offsets):
            before = turns
            cut("some words " * 50_000)
            assert turns - before > 2
    finally:
        is_over.set()
        counting.join()
