"""Hourly GPU prices according to the configuration. Reads no file, knows no history."""

from gateway.config.settings import LOCAL_BACKEND, Settings
from gateway.economics.rent import GpuRent
from gateway.money import parse_usd


def present_rents(settings: Settings) -> list[GpuRent]:
    """The bundled engine, at no rent when switched off, and every own backend with an hourly price."""
    engine = settings.engine
    own = GpuRent(LOCAL_BACKEND, LOCAL_BACKEND, 0, engine.gpu_hour_pico_usd if engine.is_enabled else None)
    others = (
        GpuRent(name, block.provider or name, 0, parse_usd(block.gpu_hour_usd))
        for name, block in settings.backends.items()
        if block.gpu_hour_usd is not None
    )
    return [own, *others]
