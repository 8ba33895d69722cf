"""A key is good from the moment in which whoever made it is told its secret, whatever process that was."""

from pathlib import Path

import httpx
import pytest

from gateway.api.assemble import build_app
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home
from gateway.stores import NewKey

pytestmark = pytest.mark.integration
PATHS = ("/v1/models", "/admin/v1/keys")


async def test_a_key_and_its_next_secret_work_at_once(tmp_path: Path) -> None:
    """Made in the database alone, as the command line does, and not told to the gateway."""
    home = Home(tmp_path / "home")
    create_home(home)
    write_first_files(home)
    gateway = await open_gateway(load_deployment(home, environ={}))
    await gateway.start()
    try:
        transport = httpx.ASGITransport(build_app(gateway))  # pyright: ignore[reportArgumentType]
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:

            async def statuses(secret: str) -> list[int]:
                headers = {"authorization": f"Bearer {secret}"}
                return [(await client.get(path, headers=headers)).status_code for path in PATHS]

            assert await statuses("bk-nobodys") == [401, 401]
            key, secret = await gateway.stores.keys.create(NewKey("new", role="owner"), author="test")
            assert await statuses(secret) == [200, 200]
            body = {"model": "nothing", "messages": [{"role": "user", "content": "hello"}]}
            rotated = await gateway.stores.secrets.rotate(key.record.id, author="test", overlap_seconds=3600)
            assert rotated is not None
            asked = await client.post("/v1/chat/completions", json=body, headers={"x-api-key": rotated.secret})
            assert asked.status_code == 404, "no such model; the key was let in"
    finally:
        await gateway.stop()
