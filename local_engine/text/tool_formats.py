"""Each family's tool call format, recognised by its chat template or, failing that, its vocabulary."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from local_engine.text.tagged_arguments import write_tagged
from local_engine.text.tool_marks import (
    CLOSE,
    DEEPSEEK,
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_CLOSE,
    DEEPSEEK_NAME,
    FUNCTION_CLOSE,
    FUNCTION_OPEN,
    LLAMA,
    MISTRAL,
    MISTRAL_ARGUMENTS,
    OPEN,
    PHI,
    PIPED,
    PIPED_CLOSE,
)

GEMMA_TURN: Final = "<start_of_turn>"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """`opens` precedes all calls, `closes` follows them, `between` separates them. The other three texts surround a
    call's name and its arguments, which are JSON or have tags of their own."""

    before_name: str
    before_arguments: str
    after_arguments: str
    opens: str = ""
    between: str = ""
    closes: str = ""
    has_tagged_arguments: bool = False

    @property
    def is_marked(self) -> bool:
        """Whether a mark distinguishes calls from a JSON answer."""
        return not f"{self.opens}{self.before_name}".startswith("{")

    def name_of(self, name: str) -> str:
        """A function's name as written in a call."""
        return json.dumps(name, ensure_ascii=False)[1:-1] if self.before_name.endswith('"') else name

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Writes calls, given by name and arguments."""
        written = [
            f"{self.before_name}{self.name_of(name)}{self.before_arguments}"
            f"{self._arguments(arguments)}{self.after_arguments}"
            for name, arguments in calls
        ]
        return f"{self.opens}{self.between.join(written)}{self.closes}"

    def _arguments(self, arguments: Any) -> str:
        return write_tagged(arguments) if self.has_tagged_arguments else json.dumps(arguments, ensure_ascii=False)


BARE: Final = ToolFormat('{"name": "', '", "parameters": ', "}", between="; ")
"""Llama 3's and Gemma's."""
TAGS: Final = ToolFormat(f'{OPEN}\n{{"name": "', '", "arguments": ', f"}}\n{CLOSE}", between="\n")
"""Hermes', Qwen's and SmolLM3's, and the default."""
FUNCTIONS: Final = ToolFormat(
    f"{OPEN}\n{FUNCTION_OPEN}", ">\n", f"{FUNCTION_CLOSE}\n{CLOSE}", between="\n", has_tagged_arguments=True
)
"""Qwen3-Coder's."""
LIST: Final = ToolFormat('{"name": "', '", "arguments": ', "}", between=", ", closes="]")
NAMED: Final = ToolFormat(MISTRAL, MISTRAL_ARGUMENTS, "")
"""Mistral's models since 2025."""
FENCED: Final = ToolFormat(
    f"{DEEPSEEK_CALL}function{DEEPSEEK_NAME}",
    "\n```json\n",
    f"\n```{DEEPSEEK_CALL_END}",
    opens=DEEPSEEK,
    between="\n",
    closes=DEEPSEEK_CLOSE,
)
"""DeepSeek's distillations, such as R1's."""


def tool_format_of(source: str, has_token: Callable[[str], bool]) -> ToolFormat:
    """`source` is the text of the model's templates."""
    if MISTRAL in source:
        blank = " " if f"{MISTRAL} [" in source else ""
        return NAMED if MISTRAL_ARGUMENTS in source else replace(LIST, opens=f"{MISTRAL}{blank}[")
    if DEEPSEEK in source:
        return FENCED
    if OPEN in source:
        return FUNCTIONS if FUNCTION_OPEN in source else TAGS
    if PIPED in source or (has_token(PIPED) and has_token(PIPED_CLOSE)):
        closing = PIPED_CLOSE if PIPED_CLOSE in source or has_token(PIPED_CLOSE) else ""
        return replace(LIST, opens=f"{PIPED}[", closes=f"]{closing}")
    if PHI in source:
        return replace(LIST, opens=PHI)
    return BARE if LLAMA in source or '"parameters": ' in source or GEMMA_TURN in source else TAGS
