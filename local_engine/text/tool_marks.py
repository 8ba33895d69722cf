"""What models write around tool calls and thoughts."""

from typing import Final

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"
MISTRAL: Final = "[TOOL_CALLS]"
MISTRAL_ARGUMENTS: Final = "[ARGS]"
MISTRAL_ID: Final = "[CALL_ID]"
LLAMA: Final = "<|python_tag|>"
# Phi-4-mini's and Granite's; the latter closes none.
PIPED: Final = "<|tool_call|>"
PIPED_CLOSE: Final = "<|/tool_call|>"
PHI: Final = "functools["
# DeepSeek's: around all calls, and around each, whose kind and name a third parts. What follows them stands in a fence.
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
# What calls follow, and what may end them.
MARKS: Final = (OPEN, MISTRAL, PIPED, PHI, LLAMA, DEEPSEEK)
CLOSES: Final = (CLOSE, PIPED_CLOSE, DEEPSEEK_CLOSE)
THINKS: Final = "<think>"
THOUGHT: Final = "</think>"
# Granite's, around what it says after its thoughts.
SAYS: Final = "<response>"
SAID: Final = "</response>"
# Special tokens that an answer's text must show, so that calls and thoughts are found in it.
SHOWN_TOKENS: Final = (
    *(OPEN, CLOSE, MISTRAL, MISTRAL_ARGUMENTS, MISTRAL_ID, LLAMA, PIPED, PIPED_CLOSE, THINKS, THOUGHT),
    *(DEEPSEEK, DEEPSEEK_CLOSE, DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_NAME),
)
