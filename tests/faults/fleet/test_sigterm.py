"""A replica is told to stop under load. The last file with this fleet, so that nobody has to start it again."""

import asyncio

import aiohttp
import pytest

from tests.faults.fleet.caller import chat, connections, until_known
from tests.faults.fleet.two_replicas import Fleet

pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def test_sigterm_under_load_drops_no_stream(fleet: Fleet) -> None:
    _, key = fleet.new_key("drained")
    await until_known(fleet.urls, key)
    async with connections(64) as session:
        asked = [asyncio.create_task(chat(session, fleet.two.url, key, stream=True, model="plain")) for _ in range(64)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        fleet.two.terminate()
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert not any(isinstance(got, aiohttp.ClientPayloadError) for got in answers), "a stream was cut"
    whole = [got for got in answers if not isinstance(got, BaseException)]
    assert {got.status for got in whole} == {200}
    assert all(got.body.endswith(b"data: [DONE]\n\n") for got in whole)
    assert await asyncio.to_thread(fleet.two.wait) == 0
    await fleet.all_are_booked_once([got.request_id for got in whole])
    assert fleet.two.output.rstrip().endswith("Stopped.")
