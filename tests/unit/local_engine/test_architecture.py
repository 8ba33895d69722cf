"""The scheduler's modules do not load torch at run time, not even indirectly."""

import subprocess
import sys


def test_scheduling_never_loads_torch() -> None:
    code = "import sys, local_engine.scheduler, local_engine.kv_cache_manager; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_line_answers_help_without_torch() -> None:
    code = "import sys, local_engine.cli as c; c.build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
