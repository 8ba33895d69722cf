"""Answers that are kept: idempotency keys, the response cache, and prompts of keys that opted in."""
