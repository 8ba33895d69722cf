"""`/tokenize`, `/detokenize` and `/tokenizer_info` in vLLM's format. Knows no engine."""

from typing import Any

import msgspec

from local_engine.errors import InvalidRequest
from local_engine.server.chat import Model, chat_prompt
from local_engine.server.openai_protocol import parse_body, parse_chat


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """A text (`content` in llama.cpp's naming), or messages, in which case the body is parsed as a chat's."""

    prompt: str | None = None
    content: str | None = None
    messages: list[Any] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Token ids of this model."""

    tokens: list[int]


_TOKENIZE = msgspec.json.Decoder(TokenizeRequest)
_DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


def tokenized(body: bytes, model: Model) -> dict[str, Any]:
    """For a chat, exactly the tokens that would be answered. Raises InvalidRequest naming the parameter."""
    request = parse_body(_TOKENIZE, body)
    text = request.prompt if request.prompt is not None else request.content
    if (text is None) == (not request.messages):
        raise InvalidRequest("Send either a prompt or messages.", parameter="prompt")
    if text is not None:
        model.tokenizer.refuse_longer(text, None, "prompt")
        ids = model.tokenizer.encode(text, with_bos=request.add_special_tokens)
    else:
        ids = chat_prompt(parse_chat(body), model)
    pieces = [model.tokenizer.fast.id_to_token(token) for token in ids] if request.return_token_strs else None
    return {"count": len(ids), "max_model_len": model.context_window, "tokens": ids, "token_strs": pieces}


def tokenizer_info(model: Model) -> dict[str, Any]:
    """What an evaluation harness needs to tokenize here: the special tokens' texts, null for missing ones."""
    names = {name: text or None for name, text in model.tokenizer.names.items()}
    return (
        {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": None}
        | names
        | {
            "chat_template": model.tokenizer.chat_template,
            "model_max_length": model.context_window,
        }
    )


def detokenized(body: bytes, model: Model) -> dict[str, Any]:
    """Raises InvalidRequest naming the parameter."""
    tokens = parse_body(_DETOKENIZE, body).tokens
    if any(not 0 <= token < model.tokenizer.vocabulary_size for token in tokens):
        message = f"tokens are from 0 to {model.tokenizer.vocabulary_size - 1}."
        raise InvalidRequest(message, parameter="tokens")
    return {"prompt": model.tokenizer.decode(tokens, skips_special=False)}
