"""One request's steps, from its bytes to its settled entry; `gateway/pipeline.py` puts them in order.

Not here: its connection (process), its endpoint (api), and the routing decision (routing).
"""
