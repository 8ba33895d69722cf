"""A chat template that opens thoughts, as Qwen3's do, and a tokenizer that has their tags."""

from tokenizers import AddedToken

from local_engine.text.tokenizer import Tokenizer
from tests.unit.local_engine.tiny_models import byte_level

TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% elif opens %}<think>\n{% endif %}"
)


def tokenizer(template: str | None = TEMPLATE, *, is_special: bool = False) -> Tokenizer:
    fast = byte_level()
    fast.add_tokens([AddedToken(tag, special=is_special) for tag in ("<think>", "</think>")])
    return Tokenizer(fast, chat_template=template, bos_token_id=None, eos_token_ids=[257])
