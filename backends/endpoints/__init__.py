"""Endpoints (Messages, Responses, Gemini's) translated to chat and back, for backends that lack them."""
