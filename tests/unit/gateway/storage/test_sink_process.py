"""What the child that writes rows imports before it writes any."""

import subprocess
import sys


def test_the_writer_of_rows_loads_nothing_that_changes_the_schema() -> None:
    """Each gateway and each worker starts one, and it took 0.2 s of CPU more."""
    code = "import sys, gateway.storage.sink_process; assert 'alembic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
