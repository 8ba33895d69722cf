"""What the economics refuse to compute.

EconomicsError (a ValueError)
├── TooFewPoints        a throughput sweep with fewer than three concurrencies
├── BeyondMeasurement   a concurrency larger than any that was measured
├── NotMeasured         a figure that the question needs and nobody measured
├── ModelDoesNotFit     weights and key-value cache exceed the GPU's memory
└── NoTraffic           a question about requests in a period without any
"""


class EconomicsError(ValueError):
    """The question cannot be answered from what is known; the message says what is missing."""


class TooFewPoints(EconomicsError):
    pass


class BeyondMeasurement(EconomicsError):
    pass


class NotMeasured(EconomicsError):
    pass


class ModelDoesNotFit(EconomicsError):
    pass


class NoTraffic(EconomicsError):
    pass
