"""The error of everything in economics that cannot be computed."""


class EconomicsError(ValueError):
    """The question cannot be answered from what is known; the message says what is missing."""
