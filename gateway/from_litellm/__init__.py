"""A configuration of LiteLLM's proxy as ours: its models, fallbacks, limits and prices. See docs/from-litellm.md."""
