"""What a request costs on a GPU that is paid by the hour, used or not.

Dollars here are floats: this is a model of an expectation, not a bill. Bills are integers (`rent`).
"""

from dataclasses import dataclass

from gateway.economics.throughput_curve import ThroughputCurve

HOURS_30_DAYS = 720.0
"""Thirty days: what `/month` means in this project and its worked example, unless a plan says otherwise."""


@dataclass(frozen=True, slots=True)
class RequestShape:
    """A mean request. `cached_share` is the share of input tokens whose prefill the prefix cache spares."""

    input_tokens: float
    output_tokens: float
    cached_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica at its operating point: `concurrency` is N*, never the throughput ceiling.

    `is_measured` False: the curve is an assumption, because nobody has run this model on that GPU yet.
    """

    curve: ThroughputCurve
    concurrency: int
    prefill_tokens_per_second: float
    is_measured: bool = True

    @property
    def decode_gpu_seconds_per_token(self) -> float:
        return 1.0 / self.curve.tokens_per_second(self.concurrency)

    def prefill_seconds(self, shape: RequestShape) -> float:
        return (1.0 - shape.cached_share) * shape.input_tokens / self.prefill_tokens_per_second

    def gpu_seconds(self, shape: RequestShape) -> float:
        """w: the replica seconds that one request consumes, unavailable to all others."""
        return self.prefill_seconds(shape) + shape.output_tokens * self.decode_gpu_seconds_per_token

    def residence_seconds(self, shape: RequestShape) -> float:
        """S = w·N*: how long a request holds one of the N* slots of a full replica."""
        return self.gpu_seconds(shape) * self.concurrency


def value_usd_per_hour(hosted_usd_per_request: float, gpu_seconds: float) -> float:
    """V: the hosted calls that one full replica saves per hour, in dollars."""
    return 3600.0 / gpu_seconds * hosted_usd_per_request


def break_even_utilisation(usd_per_replica_hour: float, value_usd_per_hour: float) -> float | None:
    """U* = H/V; above 1 no utilisation is enough. None when hosted calls are free: then owning never pays."""
    return usd_per_replica_hour / value_usd_per_hour if value_usd_per_hour > 0 else None
