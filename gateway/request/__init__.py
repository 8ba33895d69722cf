"""One request's steps, from its bytes to its settled entry; `gateway/pipeline.py` puts them in order.

Not here: the connection it came on (process), the endpoint it was sent to (api), what is decided of it (routing).
"""
