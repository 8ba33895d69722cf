"""Sentence embeddings of a tiny random encoder, compared with transformers' BERT, and its endpoint."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from local_engine.encoder import SentenceEncoder
from local_engine.errors import InvalidRequest, ModelUnavailable, ModelUnsupported
from local_engine.server.embeddings_endpoint import answer_embeddings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(60))]
TEXTS = ["w1 w2 w3", "w9", "w4 " * 25, "w5 w6 unknown"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("mini")
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=40,
    )  # fmt: skip
    BertModel(config).eval().save_pretrained(folder)
    fast = FastTokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    fast.pre_tokenizer = Whitespace()
    fast.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    fast.enable_padding(length=12)
    fast.enable_truncation(12)
    fast.save(str(folder / "tokenizer.json"))
    return folder


@torch.inference_mode()
def test_vectors_are_those_of_transformers(folder: Path) -> None:
    from transformers import BertModel

    embedded = SentenceEncoder(folder).encode(TEXTS)
    reference = BertModel.from_pretrained(folder).eval()
    for text, vector in zip(TEXTS, embedded.vectors, strict=True):
        ids = [2, *(WORDS.index(word) if word in WORDS else 1 for word in text.split()), 3]
        hidden = reference(torch.tensor([ids])).last_hidden_state[0].mean(0)
        assert vector == pytest.approx((hidden / hidden.norm()).tolist(), abs=1e-5)
    assert embedded.tokens == sum(len(text.split()) + 2 for text in TEXTS)
    assert SentenceEncoder(folder).name == folder.name.lower()
    assert SentenceEncoder(folder, name="mine").name == "mine"


@pytest.mark.parametrize(("asked", "read"), [(-1, 38), (12, 10), (3, 1), (40, 38), (39, 37)])
def test_a_long_text_is_cut_where_that_is_asked_for(folder: Path, asked: int, read: int) -> None:
    """It used to be rejected nevertheless, and shorter ones were not truncated."""
    cut = ask(folder, input=["w4 " * 50, "w5"], truncate_prompt_tokens=asked)
    alone = ask(folder, input=["w4 " * read, "w5"])
    for one, other in zip(cut["data"], alone["data"], strict=True):
        assert one["embedding"] == pytest.approx(other["embedding"], abs=1e-6)
    assert cut["usage"] == alone["usage"]


@pytest.mark.parametrize("asked", [0, 2, -2, 41])
def test_a_cut_that_leaves_nothing_or_too_much_is_refused(folder: Path, asked: int) -> None:
    with pytest.raises(InvalidRequest):
        ask(folder, input="w4 " * 50, truncate_prompt_tokens=asked)


def ask(folder: Path, **body: Any) -> dict[str, Any]:
    return json.loads(answer_embeddings(SentenceEncoder(folder), json.dumps(body).encode()))


def test_the_endpoint_answers_in_openais_shape(folder: Path) -> None:
    plain = ask(folder, input=TEXTS[:2])
    assert [entry["index"] for entry in plain["data"]] == [0, 1]
    assert plain["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    encoded = ask(folder, input=TEXTS[0], encoding_format="base64")["data"][0]["embedding"]
    # Single and batched results differ by float32 rounding, which near zero exceeds a relative tolerance.
    vector = np.frombuffer(base64.b64decode(encoded), "<f4").tolist()
    assert vector == pytest.approx(plain["data"][0]["embedding"], abs=1e-6)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": "w1 " * 80}, "input"),
        ({"input": "w1", "dimensions": 7}, "dimensions"),
        ({"input": "w1", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_bad_requests_name_their_parameter(folder: Path, body: dict[str, Any], parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(folder, **body)
    assert caught.value.parameter == parameter


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelUnsupported):
        SentenceEncoder(tmp_path)


@pytest.mark.parametrize(
    ("lost", "config", "named"),
    [
        ("encoder.layer.1.output.dense.bias", {}, "encoder.layer.1.output.dense.bias"),
        ("", {"num_attention_heads": 5}, "not those of its config"),
        ("", {"num_hidden_layers": 1}, "more layers than the 1"),
        ("", {"max_position_embeddings": 41}, "40 positions and 64 tokens; its other files say 41"),
    ],
)
def test_files_that_do_not_belong_together_are_refused_at_start(
    folder: Path, tmp_path: Path, lost: str, config: dict[str, int], named: str
) -> None:
    """The server started, and every request was answered by a 500."""
    save_file(
        {name: one for name, one in load_file(folder / "model.safetensors").items() if name != lost},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_bytes()) | config))
    with pytest.raises(ModelUnavailable, match=re.escape(named)):
        SentenceEncoder(tmp_path)


@pytest.mark.parametrize(
    ("pooling", "named"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "pools by cls_token"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "pools by max_tokens"),
        ({"pooling_mode": "lasttoken"}, "pools by lasttoken"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode": "mean"}, ""),
    ],
)
def test_vectors_that_are_no_mean_are_refused(
    folder: Path, tmp_path: Path, pooling: dict[str, Any], named: str
) -> None:
    """BGE's models, for example, have MiniLM's tensors: their vectors were means all the same."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | pooling))
    if not named:
        assert SentenceEncoder(tmp_path).dimensions == 32
        (tmp_path / "2_Dense").mkdir()
        named = "2_Dense"
    with pytest.raises(ModelUnsupported, match=named):
        SentenceEncoder(tmp_path)


def test_the_chat_model_makes_no_embeddings(folder: Path) -> None:
    encoder = SentenceEncoder(folder, name="vectors")
    for name in ("vectors", "whatever", ""):
        body = json.dumps({"input": "the", "model": name}).encode()
        assert json.loads(answer_embeddings(encoder, body, "writer"))["model"] == "vectors"
    with pytest.raises(InvalidRequest, match="request embeddings from vectors"):
        answer_embeddings(encoder, b'{"input": "the", "model": "writer"}', "writer")
