"""The inference engine, its own process: real weights behind OpenAI-compatible HTTP; imports no other room."""
