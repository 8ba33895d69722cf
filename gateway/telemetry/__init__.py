"""Metrics and traces of the request path."""
