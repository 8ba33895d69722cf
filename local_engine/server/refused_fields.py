"""Fields of other servers' clients that this engine does not support: refused by name, since ignoring them would change
the answer. Knows field names and sentences; decodes nothing else.
"""

from typing import Any, Final

import msgspec

from local_engine.errors import NotOffered

SAMPLERS: Final = "{name} is not supported; draw with temperature, top_p, top_k and min_p."
LIMIT: Final = "{name} is not read; send max_tokens."
ADAPTERS: Final = "{name} is not supported: the model is served as its file has it."
SEARCH: Final = "{name} is not supported: this model searches nothing."
TEXT_ONLY: Final = "{name} is not supported: this model reads and writes text."
# Values with which a field changes nothing, and the sentence for all others; null changes nothing either.
REFUSED: Final[dict[str, tuple[tuple[Any, ...], str]]] = {
    "typical_p": ((1,), SAMPLERS),
    "tfs_z": ((1,), SAMPLERS),
    "top_a": ((0,), SAMPLERS),
    "mirostat": ((0,), SAMPLERS),
    "dynatemp_range": ((0,), SAMPLERS),
    "xtc_probability": ((0,), SAMPLERS),
    "dry_multiplier": ((0,), SAMPLERS),
    "top_n_sigma": ((-1, 0), SAMPLERS),
    "logits_processors": (([],), "{name} is not supported; logit_bias, allowed_token_ids and bad_words are."),
    "custom_logit_processor": ((), "{name} is not supported; logit_bias, allowed_token_ids and bad_words are."),
    "repeat_penalty": ((1,), "{name} is not read; send repetition_penalty."),
    "n_predict": ((), LIMIT),
    "max_new_tokens": ((), LIMIT),
    "min_new_tokens": ((0,), "{name} is not read; send min_tokens."),
    "n_probs": ((0,), "{name} is not read; send logprobs."),
    "stop_regex": (([],), "{name} is not supported; stop takes strings."),
    "logprob_token_ids": ((), "{name} is not supported; logprobs tells of the drawn token and the likeliest."),
    "truncation_side": (("left",), "{name} is left: truncate_prompt_tokens keeps a prompt's last tokens."),
    "thinking_token_budget": ((), "{name} is not supported; send max_tokens."),
    "repetition_detection": ((), "{name} is not supported; send repetition_penalty."),
    "return_hidden_states": ((False,), "{name} is not supported; /v1/embeddings gives vectors."),
    "chat_template": ((), "{name} is not read: the model's own is used; chat_template_kwargs takes its names."),
    "lora": (([],), ADAPTERS),
    "lora_path": ((), ADAPTERS),
    "web_search_options": ((), SEARCH),
    "search_parameters": (({"mode": "off"},), SEARCH),
    "enable_search": ((False,), SEARCH),
    "plugins": (([],), SEARCH),
    "modalities": ((["text"], []), TEXT_ONLY),
    "audio": ((), TEXT_ONLY),
    "image_data": ((), TEXT_ONLY),
    "prompt_embeds": ((), TEXT_ONLY),
    "input_embeds": ((), TEXT_ONLY),
}
ECHO: Final = "{name} is for /v1/completions; continue_final_message continues a message of yours."
REFUSED_IN_CHAT: Final[dict[str, tuple[tuple[Any, ...], str]]] = REFUSED | {"echo": ((False,), ECHO)}

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def refuse_fields(body: bytes, refused: dict[str, tuple[tuple[Any, ...], str]]) -> None:
    """Raises NotOffered for the first of these fields in use in a body, known to be a JSON object."""
    fields = _FIELDS.decode(body)
    for name in refused.keys() & fields.keys():
        neutral, sentence = refused[name]
        if msgspec.json.decode(fields[name]) not in (None, *neutral):
            raise NotOffered(sentence.format(name=name), parameter=name)
