"""Reads the table of GPUs and models for what-ifs: the deployment's own `gpu_table.yaml`, or the shipped one."""

from importlib.resources import files

from gateway.config.home import Home
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_table import GpuTable, parse_gpu_table
from gateway.errors import ConfigurationError

NAME = "gpu_table.yaml"


def load_gpu_table(home: Home) -> GpuTable:
    """Raises ConfigurationError with file and field."""
    own = home.root / NAME
    try:
        text = (
            own.read_text(encoding="utf-8") if own.exists() else files("gateway.economics").joinpath(NAME).read_text()
        )
        return parse_gpu_table(text)
    except (OSError, UnicodeDecodeError, EconomicsError) as error:
        raise ConfigurationError(str(error), file=str(own) if own.exists() else NAME) from error
