"""Services used by tests in several files."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from backends.openai_compatible import OpenAICompatibleBackend
from backends.translating import TranslatingBackend
from tests.builders import make_snapshot
from tests.integration.batch_service import Batches, opened
from tests.integration.service import Passage, Service
from tests.integration.studio import MODELS
from tests.live_server import serving
from tests.rig import Rig
from tests.scripted_provider import ScriptedProvider
from tests.scripted_provider.process import provider_process


@pytest.fixture
async def service() -> AsyncGenerator[Service]:
    made = Service(Rig())
    async with serving(made.app) as url:
        made.url = url
        yield made


@pytest.fixture
async def batches(tmp_path: Path) -> AsyncGenerator[Batches]:
    async with opened(tmp_path) as made:
        yield made


@pytest.fixture
async def studio() -> AsyncGenerator[Passage]:
    service = Service(Rig())
    rules = "version: 1\nrules: [{name: default, choose: {from: any, by: expected_cost}}]\n"
    service.rig.pipeline.snapshot = make_snapshot(rules, MODELS)
    async with ScriptedProvider() as provider, serving(service.app) as url:
        backend = OpenAICompatibleBackend("one", provider.base_url, "sk")
        service.rig.pipeline.backends = {"one": TranslatingBackend(backend)}
        yield Passage(service, provider, url)
        await backend.aclose()


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a provider whose answers take a second."""
    with provider_process("--pieces", "20", "--delay", "0.05") as process:
        yield process.url
