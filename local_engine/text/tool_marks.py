"""Marks that models write around tool calls and thoughts."""

from typing import Final

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
MISTRAL: Final = "[TOOL_CALLS]"
MISTRAL_ARGUMENTS: Final = "[ARGS]"
MISTRAL_ID: Final = "[CALL_ID]"
LLAMA: Final = "<|python_tag|>"
# Phi-4-mini's and Granite's; the latter has no closing mark.
PIPED: Final = "<|tool_call|>"
PIPED_CLOSE: Final = "<|/tool_call|>"
PHI: Final = "functools["
# DeepSeek's: around all calls, around each call, and between a call's kind and name. A fence follows.
DEEPSEEK: Final = "<｜tool▁calls▁begin｜>"
DEEPSEEK_CLOSE: Final = "<｜tool▁calls▁end｜>"
DEEPSEEK_CALL: Final = "<｜tool▁call▁begin｜>"
DEEPSEEK_CALL_END: Final = "<｜tool▁call▁end｜>"
DEEPSEEK_NAME: Final = "<｜tool▁sep｜>"
# Qwen3-Coder's, within the tags around a call.
FUNCTION_OPEN: Final = "<function="
FUNCTION_CLOSE: Final = "</function>"
PARAMETER_OPEN: Final = "<parameter="
PARAMETER_CLOSE: Final = "</parameter>"
# Marks before calls, and marks that may end them.
MARKS: Final = (OPEN, MISTRAL, PIPED, PHI, LLAMA, DEEPSEEK)
CLOSES: Final = (CLOSE, PIPED_CLOSE, DEEPSEEK_CLOSE)
THINKS: Final = "<think>"
THOUGHT: Final = "</think>"
# Granite's, around the answer after its thoughts.
SAYS: Final = "<response>"
SAID: Final = "</response>"
# Special tokens that must appear in an answer's text, so that calls and thoughts can be found.
SHOWN_TOKENS: Final = (
    *(OPEN, CLOSE, MISTRAL, MISTRAL_ARGUMENTS, MISTRAL_ID, LLAMA, PIPED, PIPED_CLOSE, THINKS, THOUGHT),
    *(DEEPSEEK, DEEPSEEK_CLOSE, DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_NAME),
)
