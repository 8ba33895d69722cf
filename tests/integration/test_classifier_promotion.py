"""A running gateway adopts a promoted classifier and its rollback, and records the version in its decisions."""

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from classifier.load import SHIPPED as SHIPPED_FOLDER
from classifier.online.correction import Correction
from gateway.cli.demo.month import write_demo_month
from gateway.composition.deployment import load_deployment
from gateway.composition.running import BEHIND, Gateway
from gateway.composition.wiring import open_gateway
from gateway.config.home import Home
from gateway.learning.classifier_versions import SHIPPED, Active
from gateway.stores import ClassifierChoice
from tests.waiting import until


async def decides_by(gateway: Gateway, *, corrected: bool) -> str:
    """The version recorded in decisions, once it is of that kind."""
    for _ in range(600):
        version = gateway.pipeline.snapshot.classifier_version
        if ("+" in version) is corrected:
            return version
        await asyncio.sleep(0.1)
    raise AssertionError("the gateway never took it over")


async def test_promotion_and_rollback_reach_a_running_gateway(tmp_path: Path) -> None:
    month = await write_demo_month(Home(tmp_path), now=datetime(2026, 11, 20, 12, tzinfo=UTC), requests=5)
    assert month is not None
    gateway = await open_gateway(load_deployment(month.home, environ={}))
    await gateway.start()
    try:
        before = await decides_by(gateway, corrected=False)
        name = gateway.versions.add_correction(Correction({"some-model": (-1.0, 0.0)}), {})
        await gateway.shared_versions.activate(Active(SHIPPED, name, "test", 1), author="test")
        assert (await decides_by(gateway, corrected=True)) == f"{before}+{name}"
        assert gateway.pipeline.classifier is not None
        assert gateway.pipeline.classifier.version == f"{before}+{name}"
        await gateway.shared_versions.rollback(author="test")
        assert await decides_by(gateway, corrected=False) == before
    finally:
        await gateway.stop()


async def test_a_choice_of_another_replica_that_cannot_be_used_changes_nothing_and_is_told(tmp_path: Path) -> None:
    month = await write_demo_month(Home(tmp_path), now=datetime(2026, 11, 20, 12, tzinfo=UTC), requests=5)
    assert month is not None
    gateway = await open_gateway(load_deployment(month.home, environ={}))
    await gateway.start()
    try:
        before = gateway.pipeline.snapshot.classifier_version
        name = "a" * 16
        await gateway.stores.classifier.keep({f"artefacts/{name}/manifest.json": b"{"})
        history = json.dumps([asdict(Active()), asdict(Active(name, None, "adapted", 1))])
        choice = ClassifierChoice(1, history, 1, "ann", "classifier.promote", name, "adapted", [name])
        assert await gateway.stores.classifier.choose(choice)
        await until(lambda: BEHIND in gateway.warnings())
        assert gateway.pipeline.snapshot.classifier_version == before
        await gateway.shared_versions.rollback(author="ann")
        await until(lambda: BEHIND not in gateway.warnings())
        assert gateway.pipeline.snapshot.classifier_version == before
    finally:
        await gateway.stop()


@pytest.mark.parametrize(
    "damaged", ["active.json", "corrections/{correction}.json", "artefacts/{artefact}/weights.bin"]
)
async def test_a_home_whose_copy_is_damaged_is_given_the_databases_at_its_start(tmp_path: Path, damaged: str) -> None:
    month = await write_demo_month(Home(tmp_path), now=datetime(2026, 11, 20, 12, tzinfo=UTC), requests=5)
    assert month is not None
    before = await open_gateway(load_deployment(month.home, environ={}))
    await before.start()
    artefact = before.versions.add_artefact(SHIPPED_FOLDER)
    correction = before.versions.add_correction(Correction({"some-model": (-1.0, 0.0)}), {})
    await before.shared_versions.activate(Active(artefact, correction, "test", 1), author="test")
    await before.stop()
    folder = month.home.classifier_directory
    (folder / damaged.format(artefact=artefact, correction=correction)).write_text("[{")
    after = await open_gateway(load_deployment(month.home, environ={}))
    try:
        assert after.classifier.version.endswith(f"+{correction}")
    finally:
        await after.stop()
