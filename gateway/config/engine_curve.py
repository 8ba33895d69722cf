"""The engine's measured throughput curve as a file: written by `breakeven bench engine`, read at start."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from gateway.config.settings import ThroughputSettings
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import Engine
from gateway.economics.throughput_curve import SweepPoint, best_concurrency, fit_throughput_curve
from gateway.errors import ConfigurationError, StateError
from gateway.routing.snapshot import EngineSpeed
from gateway.whole_file import write_whole

TIME_PER_OUTPUT_TOKEN_TARGET_SECONDS = 0.25
"""Slower output keeps a reader waiting; N* is the largest concurrency below this."""


PositiveSpeed = Annotated[float, msgspec.Meta(ge=1e-6, le=1e12)]
"""Tokens per second: requests are priced by dividing by it."""
LARGEST_CONCURRENCY = 65_536
Concurrency = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_CONCURRENCY)]


class CurveFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content. `is_assumed` marks the figures used until the first measurement on this machine."""

    model: str
    prefill_tokens_per_second: PositiveSpeed
    points: list[tuple[Concurrency, PositiveSpeed]]  # (concurrency, total decode tokens per second)
    is_assumed: bool = False


# SmolLM2-135M on two cores (order of magnitude only): used for the first seconds, until this machine is measured.
ASSUMED = CurveFile("", 200.0, [(1, 20.0), (2, 30.0), (4, 45.0)], is_assumed=True)


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """The curve in the two forms used by economics and routing."""

    engine: Engine
    is_assumed: bool

    def speed(self, gpu_hour_pico_usd: int) -> EngineSpeed:
        """Figures for the decision, at the curve's working point N*."""
        return EngineSpeed(
            prefill_tokens_per_second=self.engine.prefill_tokens_per_second,
            decode_seconds_per_token=self.engine.decode_gpu_seconds_per_token,
            step_seconds=self.engine.curve.step_seconds(self.engine.concurrency),
            gpu_hour_pico_usd=gpu_hour_pico_usd,
        )


def load_engine_curve(path: Path) -> MeasuredEngine:
    """The stored curve, or the assumed one before the first measurement. Raises ConfigurationError."""
    if not path.exists():
        return fit_engine(ASSUMED)
    try:
        return fit_engine(msgspec.json.decode(path.read_bytes(), type=CurveFile))
    except (OSError, msgspec.DecodeError, EconomicsError, ValueError) as error:
        raise ConfigurationError(
            f"is not a throughput curve ({error}); delete it and run `breakeven bench engine`", file=str(path)
        ) from error


def save_engine_curve(path: Path, curve: CurveFile) -> MeasuredEngine:
    """Writes atomically and returns the fit. Raises EconomicsError for points that make no curve."""
    measured = fit_engine(curve)
    try:
        write_whole(path, msgspec.json.format(msgspec.json.encode(curve)))
    except OSError as error:
        raise StateError(f"cannot write {path}: {error.strerror}") from error
    return measured


def curve_of_block(throughput: ThroughputSettings) -> MeasuredEngine:
    """What a backend's block says of its own engine. Raises EconomicsError for points that make no curve."""
    return fit_engine(CurveFile("", throughput.prefill_tokens_per_second, throughput.points))


def fit_engine(curve: CurveFile) -> MeasuredEngine:
    """The fit and its working point N*. Raises EconomicsError for points that make no curve."""
    points = [SweepPoint(concurrency, speed) for concurrency, speed in curve.points]
    fitted = fit_throughput_curve(points)
    working = best_concurrency(fitted, time_per_output_token_seconds=TIME_PER_OUTPUT_TOKEN_TARGET_SECONDS) or 1
    return MeasuredEngine(Engine(fitted, working, curve.prefill_tokens_per_second), curve.is_assumed)
