"""Keeps the suites of the client libraries out of `make test`: they run in a venv of their own."""

collect_ignore = ["python"]
