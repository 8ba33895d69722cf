"""What `breakeven serve` imports before it knows whether it serves itself or supervises workers."""

import subprocess
import sys


def test_the_first_process_of_a_fleet_loads_nothing_that_serves() -> None:
    """It serves no requests; those imports took 0.7 s of CPU and 23 MB."""
    code = "import sys, gateway.cli.serve; assert not {'fastapi', 'gateway.pipeline'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
