"""Providers' wire formats, and their translation to OpenAI's chat and back."""
