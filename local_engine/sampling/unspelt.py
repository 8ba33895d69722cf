"""A vocabulary as the library behind grammars is to read it: no text of a grammar spells its special tokens.

Text that may only go on in one way is cut into tokens by the vocabulary itself, which makes a special token of
`<|im_end|>`; and that the library then finds to be no text, and gives up. Knows nothing of grammars but how they name
tokens.
"""

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

# What is no name in a Lark grammar (strings, expressions, comments), and a token's name.
NAMES: Final = re.compile(r'"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\\n])+/|(?:#|//)[^\n]*|(<[^<>\s]+>)')

SPECIAL: Final = {"special": True} | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def unspelt(tokenizer: str) -> tuple[str, dict[str, int]]:
    """The same tokenizer, as JSON, with its special tokens under other names; and their ids by their own."""
    read: dict[str, Any] = json.loads(tokenizer)
    special = {token["content"]: token["id"] for token in read["added_tokens"] if _is_special(token)}
    # Unforeseeable, or a grammar could spell it.
    mark = secrets.token_hex(8)
    names = {token: f"<{mark}x{number}>" for token, number in special.items()}
    for token in read["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    model = read["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(token, token): number for token, number in model["vocab"].items()}
        # Of the model's own, or their ids would be found by counting, as the library counts to the largest one; which
        # is wrong where some are no token's.
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
        # Pieces may make up such a token, or be one.
        model["merges"] = [(a, b) for a, b in model["merges"] if not (a in names or b in names or a + b in names)]
    return json.dumps(read), special


def with_ids(lark: str, special: Mapping[str, int]) -> str:
    """A grammar with its special tokens named by their ids."""
    return NAMES.sub(lambda found: f"<[{special[found[1]]}]>" if found[1] in special else found[0], lark)


def _is_special(token: Mapping[str, Any]) -> bool:
    """As the library has it."""
    return token["special"] or (token["content"].startswith("<") and token["content"].endswith(">"))
