"""One request's steps, from its bytes to its settled entry; `gateway/pipeline.py` puts them in order."""
