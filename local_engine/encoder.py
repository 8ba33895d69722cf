"""Sentence embeddings of the MiniLM family: a BERT encoder, mean-pooled and normalised, without a cache."""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer as FastTokenizer
from torch.nn import functional as F

from local_engine.errors import ContextLengthExceeded, ModelUnavailable, ModelUnsupported
from local_engine.loading.safetensors_loader import SafetensorsWeights, read_json
from local_engine.text.panics import panics_told
from local_engine.text.user_markup import cut_into_tokens

BATCH_TOKENS = 4096
POOLING = "pooling_mode_"


@dataclass(frozen=True, slots=True)
class Embedded:
    """Unit vectors in the order of the texts, and the number of tokens read."""

    vectors: list[list[float]]
    tokens: int


class SentenceEncoder:
    """Thread-safe: weights are only read."""

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        """Loads a folder, served under the folder's name by default; raises ModelUnavailable or ModelUnsupported."""
        raw = read_json(folder / "config.json")
        if raw.get("model_type") != "bert" or raw.get("hidden_act") != "gelu":
            raise ModelUnsupported(f"{folder.name} is not an encoder of the MiniLM family.")
        if raw.get("position_embedding_type", "absolute") != "absolute":
            raise ModelUnsupported(f"{folder.name} has relative positions, which are not supported.")
        _refuse_other_pooling(folder)
        self.name = name or folder.resolve().name.lower()
        try:
            self.context_window = int(raw["max_position_embeddings"])
            self.dimensions = int(raw["hidden_size"])
            self._layers = int(raw["num_hidden_layers"])
            self._heads = int(raw["num_attention_heads"])
            self._epsilon = float(raw["layer_norm_eps"])
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise ModelUnavailable(f"{folder / 'config.json'} lacks a size, or holds none ({error}).") from error
        weights = SafetensorsWeights(folder)
        self._weights = {name: weights.tensor(name) for name in weights.names() if "position_ids" not in name}
        if f"encoder.layer.{self._layers}.output.dense.weight" in self._weights:
            raise ModelUnavailable(f"{folder} has more layers than the {self._layers} of its config.json.")
        try:
            with panics_told():
                self._tokenizer = FastTokenizer.from_file(str(folder / "tokenizer.json"))
        # The tokenizers library raises bare Exception for a damaged file.
        except Exception as error:
            raise ModelUnavailable(f"{folder / 'tokenizer.json'} is missing or damaged ({error}).") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._check(folder)

    def _check(self, folder: Path) -> None:
        """Raises ModelUnavailable for files that do not belong together, which only requests would find out."""
        try:
            self._forward([[0]])
            places, words = (
                len(self._weights[f"embeddings.{part}_embeddings.weight"]) for part in ("position", "word")
            )
        except (LookupError, RuntimeError) as error:
            raise ModelUnavailable(f"The tensors of {folder} are not those of its config.json ({error}).") from error
        last = max(self._tokenizer.get_vocab().values(), default=0)
        if places < self.context_window or words <= last:
            raise ModelUnavailable(
                f"{folder} has vectors for {places} positions and {words} tokens; its other files say "
                f"{self.context_window} and {last + 1}."
            )

    def encode(self, texts: list[str], first: int | None = None) -> Embedded:
        """Embeds texts, or the first `first` tokens of each, special tokens included; raises ContextLengthExceeded for
        one that is too long."""
        with cut_into_tokens(sum(map(len, texts))):
            ids = [_first(encoding.ids, first) for encoding in self._tokenizer.encode_batch_fast(texts)]
        longest = max(len(tokens) for tokens in ids)
        if longest > self.context_window:
            raise ContextLengthExceeded(
                f"This model reads {self.context_window} tokens at a time; the input has {longest}.", parameter="input"
            )
        vectors: list[list[float]] = [[]] * len(ids)
        # Texts of similar length share a batch, to minimise padding.
        for batch in _batches(sorted(range(len(ids)), key=lambda at: len(ids[at])), [len(tokens) for tokens in ids]):
            for at, vector in zip(batch, self._forward([ids[at] for at in batch]).tolist(), strict=True):
                vectors[at] = vector
        return Embedded(vectors, sum(len(tokens) for tokens in ids))

    @torch.inference_mode()
    def _forward(self, rows: list[list[int]]) -> torch.Tensor:
        width = max(len(row) for row in rows)
        ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
        is_token = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], dtype=torch.bool)
        weights = self._weights
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][:width]
        x = self._norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self._layers):
            x = self._block(x, f"encoder.layer.{layer}.", is_token)
        kept = is_token[..., None].float()
        return F.normalize((x * kept).sum(dim=1) / kept.sum(dim=1), dim=-1)

    def _block(self, x: torch.Tensor, prefix: str, is_token: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._split(self._linear(x, f"{prefix}attention.self.{part}")) for part in ("query", "key", "value"))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=is_token[:, None, None, :])
        attended = attended.transpose(1, 2).reshape(x.shape)
        x = self._norm(
            x + self._linear(attended, f"{prefix}attention.output.dense"), f"{prefix}attention.output.LayerNorm"
        )
        inner = F.gelu(self._linear(x, f"{prefix}intermediate.dense"))
        return self._norm(x + self._linear(inner, f"{prefix}output.dense"), f"{prefix}output.LayerNorm")

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], self._heads, -1).transpose(1, 2)

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(
            x, x.shape[-1:], self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], self._epsilon
        )


def _refuse_other_pooling(folder: Path) -> None:
    """Raises ModelUnsupported for a model of sentence-transformers whose vectors are no mean over the tokens."""
    path = folder / "1_Pooling" / "config.json"
    raw = read_json(path) if path.exists() else {}
    modes = {name.removeprefix(POOLING) for name, is_used in raw.items() if name.startswith(POOLING) and is_used}
    named = {str(raw.get("pooling_mode", "mean"))}
    if other := sorted((modes | named) - {"mean_tokens", "mean"}):
        raise ModelUnsupported(f"{folder.name} pools by {' and '.join(other)}; only the mean over tokens is computed.")
    if dense := sorted(folder.glob("[0-9]_Dense")):
        raise ModelUnsupported(
            f"{folder.name} has a layer behind its pooling ({dense[0].name}), which is not computed."
        )


def _first(ids: list[int], count: int | None) -> list[int]:
    """Truncates as transformers does: the final special token stays."""
    return ids if count is None or len(ids) <= count else [*ids[: count - 1], ids[-1]]


def _batches(order: list[int], lengths: list[int]) -> list[list[int]]:
    """Splits an ascending order into runs whose padded size stays within BATCH_TOKENS."""
    batches: list[list[int]] = []
    for at in order:
        if batches and (len(batches[-1]) + 1) * lengths[at] <= BATCH_TOKENS:
            batches[-1].append(at)
        else:
            batches.append([at])
    return batches
