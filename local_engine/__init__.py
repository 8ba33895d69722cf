"""The inference engine, a process of its own: real weights behind OpenAI-compatible HTTP; imports no other room."""
