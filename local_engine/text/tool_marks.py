"""What models write around tool calls."""

from typing import Final

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
MISTRAL: Final = "[TOOL_CALLS]"
MISTRAL_ARGUMENTS: Final = "[ARGS]"
MISTRAL_ID: Final = "[CALL_ID]"
LLAMA: Final = "<|python_tag|>"
# Special tokens that an answer's text must show, so that calls are found in it.
SHOWN_TOKENS: Final = (OPEN, CLOSE, MISTRAL, MISTRAL_ARGUMENTS, MISTRAL_ID, LLAMA)
