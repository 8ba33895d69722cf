"""What break-even compares in this deployment: its own GPUs as plans, and a hosted model from its catalogue."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gateway.config.engine_curve import MeasuredEngine, curve_of_block
from gateway.config.settings import LOCAL_BACKEND, EngineSettings, Settings
from gateway.economics.gpu_cost import Engine
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic
from gateway.errors import InvalidRequest
from gateway.money import parse_usd
from gateway.pricing.price import usual
from gateway.routing.snapshot import Candidate, Snapshot


@dataclass(frozen=True, slots=True)
class OwnGpus:
    """One backend's GPUs, which break-even can be asked about. `engine` None: nobody has measured its speed."""

    backend: str
    plan: GpuPlan
    engine: Engine | None


def own_gpus(settings: Settings, curve: MeasuredEngine) -> list[OwnGpus]:
    """The bundled engine, and every backend with an hourly price. An engine that is switched off, as it would be, only
    if there is nothing else."""
    bundled = OwnGpus(LOCAL_BACKEND, own_engine_plan(settings.engine), throughput(curve))
    others = [
        OwnGpus(name, _block_plan(name, block.gpu_hour_usd), curve_of_block(block.throughput).engine)
        for name, block in settings.backends.items()
        if block.gpu_hour_usd is not None and block.throughput is not None
    ]
    return [bundled, *others] if settings.engine.is_enabled else others or [bundled]


def _block_plan(name: str, hour_usd: Decimal) -> GpuPlan:
    return GpuPlan(name=f"{name} at ${hour_usd} an hour", gpu_hour_price_pico_usd=parse_usd(hour_usd), is_running=True)


def own_engine_plan(settings: EngineSettings) -> GpuPlan:
    """The bundled engine at its configured price; if it runs, its utilisation is what the ledger measured."""
    return GpuPlan(
        name=f"{settings.name} at ${settings.gpu_hour_usd} an hour",
        gpu_hour_price_pico_usd=settings.gpu_hour_pico_usd,
        replicas=1,
        fixed_month_pico_usd=parse_usd(settings.fixed_usd_per_month),
        is_running=settings.is_enabled,
    )


def throughput(curve: MeasuredEngine) -> Engine | None:
    """The measured curve; None while only assumed figures exist, so that the ledger's GPU-seconds are used."""
    return None if curve.is_assumed else curve.engine


def hosted_candidates(snapshot: Snapshot) -> list[Candidate]:
    """Hosted chat models with a known price, cheapest output first."""
    candidates = snapshot.candidates.values()
    hosted = [one for one in candidates if one.prices is not None and not one.is_local and one.specialty is None]
    return sorted(hosted, key=lambda one: (one.prices.rates.output if one.prices else 0, one.name))


def to_be_had(hosted: Sequence[Candidate]) -> Sequence[Candidate]:
    """Without those that are only simulated, unless all are: nobody could send anything there."""
    return [one for one in hosted if not one.is_simulated] or hosted


def most_used(rows: Iterable[HourlyTraffic]) -> list[str]:
    """The models by their requests, most first."""
    requests: Counter[str] = Counter()
    for row in rows:
        requests[row.model] += row.requests
    return [model for model, _ in requests.most_common()]


def pick_alternative(snapshot: Snapshot, name: str | None, used: Iterable[str]) -> Candidate:
    """The model to compare with: the named one, else the most used, else the cheapest that there is. Raises
    InvalidRequest."""
    hosted = hosted_candidates(snapshot)
    by_name = {one.name: one for one in hosted}
    if name is not None:
        if name not in by_name:
            raise InvalidRequest(
                f"{name!r} is not a hosted model with a known price; there are: {', '.join(by_name) or 'none'}.",
                param="hosted_model",
            )
        return by_name[name]
    most_used = next((model for model in used if model in by_name), None)
    if most_used is not None:
        return by_name[most_used]
    if not hosted:
        raise InvalidRequest("There is no hosted model with a known price to compare with; set a provider's key.")
    return to_be_had(hosted)[0]


def hosted_alternative(candidate: Candidate, *, factor: Fraction = Fraction(1)) -> HostedAlternative:
    """The candidate's usual price as break-even needs it, its discount applied; simulated ones say so."""
    assert candidate.prices is not None
    share = (1 - candidate.prices.discount) * factor
    rates, multiplier = usual(candidate.prices, candidate.asked_tier)
    cached = rates.cached_input if rates.cached_input is not None else rates.input
    return HostedAlternative(
        name=f"{candidate.name} (simulated)" if candidate.is_simulated else candidate.name,
        input_pico_usd_per_token=round(rates.input * multiplier * share),
        cached_input_pico_usd_per_token=round(cached * multiplier * share),
        output_pico_usd_per_token=round(rates.output * multiplier * share),
        request_pico_usd=round(candidate.prices.per_request_pico_usd * share),
    )
