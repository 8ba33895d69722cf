"""Requests over HTTP, OpenAI's wire, and answers on their way out."""
