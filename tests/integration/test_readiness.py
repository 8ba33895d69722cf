"""What `/readyz` is told by a gateway whose journal takes nothing: no balancer may go on sending it requests."""

from pathlib import Path

import pytest

from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home

pytestmark = pytest.mark.integration


async def test_a_journal_that_takes_nothing_is_a_problem(tmp_path: Path) -> None:
    home = Home(tmp_path)
    create_home(home)
    write_first_files(home)
    gateway = await open_gateway(load_deployment(home, environ={}))
    try:
        others = gateway.problems()
        await gateway.journal.aclose()
        assert gateway.problems() == [*others, "The journal is closed."]
    finally:
        await gateway.stop()
