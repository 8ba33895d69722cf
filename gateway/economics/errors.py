"""What the economics refuse to compute."""


class EconomicsError(ValueError):
    """The question cannot be answered from what is known; the message says what is missing."""
