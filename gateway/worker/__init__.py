"""One of several worker processes on a port: `python -m gateway.worker`, supervised by `breakeven serve`."""
