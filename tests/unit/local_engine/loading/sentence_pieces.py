"""The metadata of a GGUF file with a small SentencePiece vocabulary."""

from typing import Any

from local_engine.loading.vocabulary import SPACE

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [SPACE, "a", "b", "c", "e", "t", "ab", "bc", SPACE + "a", "abc", SPACE + "t", "te", SPACE + "te", "at", "cab"]
SENTENCE_PIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *BYTES, *PIECES],
    "tokenizer.ggml.scores": [0.0] * 259 + [-float(at) for at in range(len(PIECES))],
    "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(PIECES)],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
FIRST_PIECE = 259
