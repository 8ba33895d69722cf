"""Between text and token ids: templates, tokenizers, tool calls, displayable text."""
