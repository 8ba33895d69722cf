"""The service: HTTP in, decision, dispatch, metering, ledger, admin API and CLI."""

__version__ = "0.1.0"
