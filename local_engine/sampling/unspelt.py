"""Rewrites a vocabulary for the grammar library so that no text of a grammar spells a special token.

Text that can continue in only one way is tokenized by the vocabulary itself, which turns `<|im_end|>` into a special
token; the library then finds that this is no text, and gives up. Knows nothing of grammars but how they name tokens.
"""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

# Parts of a Lark grammar that contain no names (strings, expressions, comments), and a token's name.
NAMES: Final = re.compile(r'"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\\n])+/|(?:#|//)[^\n]*|(<[^<>\s]+>)')

SPECIAL: Final = {"special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def unspelt(tokenizer: str) -> tuple[str, dict[str, int]]:
    """The same tokenizer, as JSON, with its special tokens renamed; and their ids by original name."""
    read: dict[str, Any] = json.loads(tokenizer)
    special = {token["content"]: token["id"] for token in read["added_tokens"] if _is_special(token)}
    # Random, so that no grammar can spell it.
    mark = secrets.token_hex(8)
    names = {token: f"<{mark}x{number}>" for token, number in special.items()}
    for token in read["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = read["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): number for token, number in model["vocab"].items()}
        # Added to the model's own vocabulary: the library would otherwise assign ids by counting up to the largest one,
        # which is wrong if some ids are unused.
        model["vocab"] |= {token["content"]: token["id"] for token in read["added_tokens"]}
        used = {*model["vocab"].values()}
        unused = {f"<{mark}x{number}>": number for number in range(max(used, default=0)) if number not in used}
        model["vocab"] |= unused
        read["added_tokens"] += [SPECIAL | {"id": number, "content": token} for token, number in unused.items()]
    else:
        model["vocab"] = [(names.get(token, token), score) for token, score in model["vocab"]]
    if "unk_token" in model:
        model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        # Merges may produce such a token, or contain one.
        model["merges"] = [(a, b) for a, b in model["merges"] if not (a in names or b in names or a + b in names)]
    return json.dumps(read), special


def with_ids(lark: str, special: Mapping[str, int]) -> str:
    """A grammar with its special tokens named by id."""
    return NAMES.sub(lambda found: f"<[{special[found[1]]}]>" if found[1] in special else found[0], lark)


def _is_special(token: Mapping[str, Any]) -> bool:
    """The library's own definition."""
    return token["special"] or (token["content"].startswith("<") and token["content"].endswith(">"))
