"""Stored answers: under idempotency keys, in the response cache, for responses and conversations that continue, and for
keys that opted in to keeping text."""
