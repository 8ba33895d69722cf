"""Every malformed stream over a real connection: no crash, bounded memory, and each ends in its defined status."""

import pytest

from backends.errors import BackendError, StreamBroken
from backends.openai_compatible import OpenAICompatibleBackend
from backends.protocol import Chunk
from tests.contract.calls import make_call, text_of
from tests.scripted_provider import Raw, ScriptedProvider
from tests.scripted_provider.malformed import Variant, variants

VARIANTS = list(variants())


def test_there_are_at_least_forty() -> None:
    assert len(VARIANTS) >= 40
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
async def test_each_ends_in_its_defined_status(variant: Variant) -> None:
    chunks: list[Chunk] = []
    end = "completed"
    async with ScriptedProvider(Raw(variant.pieces)) as provider:
        backend = OpenAICompatibleBackend("under-test", provider.base_url, None)
        reply = await backend.open(make_call(wants_usage=True))
        try:
            async for chunk in reply:
                chunks.append(chunk)  # noqa: PERF401 (what came before the error matters)
        except BackendError as error:
            end = "broken" if isinstance(error, StreamBroken) else "refused"
        finally:
            await reply.aclose()
            await backend.aclose()
    assert end == variant.end
    assert text_of(chunks) == variant.text
    assert (bool(chunks) and chunks[-1].is_done) is (variant.end == "completed")
    assert any(chunk.usage for chunk in chunks) is variant.has_usage
    assert any(chunk.is_usage_malformed for chunk in chunks) is variant.is_usage_malformed
