"""Runnable measurements: python -m benchmarks.NAME --json; the last run of each is committed under results/."""
