"""Between text and token ids: templates, tokenizers, tool calls, text that may be shown."""
