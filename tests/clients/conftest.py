"""Excludes the suites of the client libraries from `make test`: they run in a venv of their own."""

collect_ignore = ["python"]
