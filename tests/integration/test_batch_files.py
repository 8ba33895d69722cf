"""Files of batches through the official client: stored unchanged, limited in size, and deleted on request."""

from typing import Any

import anthropic
import httpx
import openai
import pytest

from gateway.batches.values import StoredFile
from gateway.instants import DAY_US
from tests.integration.batch_service import (
    BOUNDS,
    LARGE,
    Batches,
    begun,
    counts,
    download,
    large_parts,
    lines,
    lose_parts,
    request,
    until,
)
from tests.rig import KEY

pytestmark = pytest.mark.integration


async def test_files_are_kept_as_they_came_and_forgotten_when_told(batches: Batches) -> None:
    content = bytes(range(256)) * 300
    async with batches.client() as client:
        file = await client.files.create(
            file=("any.bin", content), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
        )
        assert (file.bytes, file.filename, file.purpose, file.status) == (len(content), "any.bin", "batch", "processed")
        assert file.expires_at == file.created_at + 3600
        download = await client.files.content(file.id)
        assert download.content == content
        assert download.response.headers["content-disposition"] == 'attachment; filename="any.bin"'
        assert (await client.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(file.id)
        kept = await client.files.create(file=("Zürich 1.bin", content), purpose="batch")
        told = (await client.files.content(kept.id)).response.headers["content-disposition"]
        assert told == "attachment; filename*=utf-8''Z%C3%BCrich%201.bin"
        batches.hours_later(24 * 31)
        assert await batches.stores.batches.forget(batches.rig.pipeline.now_us(), 30 * DAY_US) == 1
        with pytest.raises(openai.NotFoundError):
            await client.files.content(kept.id)


async def test_a_file_that_is_forgotten_while_it_is_downloaded_is_not_taken_for_whole(
    batches: Batches, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor for an empty one, if it was deleted just after it was found."""
    path = "/v1/files/file-1/content"
    file = StoredFile("file-1", "team red", "batch", "a", LARGE, 1, 2)
    await batches.stores.files.write(file, large_parts(), most_bytes=1 << 30)
    async with httpx.AsyncClient(
        base_url=batches.url, headers={"authorization": f"Bearer {KEY}"}, timeout=120
    ) as client:
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
            await download(batches.url + path, KEY, lambda: batches.stores.batches.forget(3, DAY_US))
        assert (await client.get("/v1/files")).json()["data"] == []
        assert "an answer that had begun was cut off: The file file-1 is no longer stored" in caplog.text
        assert "Traceback" not in caplog.text
        await batches.stores.files.write(file, large_parts(), most_bytes=1 << 30)
        await lose_parts(batches)
        answer = await client.get(path)
        assert (answer.status_code, "is no longer stored" in answer.text) == (404, True)


async def test_a_files_name_is_what_can_be_shown(batches: Batches) -> None:
    """PostgreSQL rejects NULs, and terminals obey escape sequences."""
    part = b'--x\r\nContent-Disposition: form-data; name="'
    form = b'purpose"\r\n\r\nbatch\r\n%bfile"; filename="a\x00\x1b[31mb"\r\n\r\nhi\r\n--x--\r\n' % part
    async with httpx.AsyncClient(
        base_url=batches.url, headers={"authorization": f"Bearer {KEY}"}, timeout=120
    ) as client:
        headers = {"content-type": "multipart/form-data; boundary=x"}
        assert (await client.post("/v1/files", content=part + form, headers=headers)).json()["filename"] == "a[31mb"
        assert (await client.get("/v1/files?purpose=%00")).status_code == 400


async def test_how_much_is_stored_is_bounded(batches: Batches) -> None:
    async with batches.client() as client:
        with pytest.raises(openai.APIStatusError, match=r"larger than 100,000 bytes.*max_file_megabytes") as caught:
            await client.files.create(file=("a", b"x" * 100_001), purpose="batch")
        assert caught.value.status_code == 413
        await client.files.create(file=("a", b"x" * 100_000), purpose="batch")
        with pytest.raises(openai.APIStatusError, match=r"room for 50,000: .*max_stored_megabytes") as caught:
            await client.files.create(file=("a", b"x" * 50_001), purpose="batch")
        assert (caught.value.status_code, caught.value.code) == (413, "files_full")
        assert len([one async for one in client.files.list()]) == 1, "a refused one leaves nothing"


async def test_what_a_batch_writes_takes_room_and_is_not_refused(batches: Batches) -> None:
    async with batches.client() as client:
        batch = await begun(client, request(1))
        left = BOUNDS.most_stored_bytes - (await client.files.retrieve(batch.input_file_id)).bytes
        for size in (BOUNDS.most_file_bytes, left - BOUNDS.most_file_bytes):
            await client.files.create(file=("a", b"x" * size), purpose="batch")
        async with batches.working():
            done = await until(client, batch)
        assert counts(done) == (1, 1, 0)
        assert len(await lines(client, done.output_file_id)) == 1
        with pytest.raises(openai.APIStatusError, match="room for 0: "):
            await client.files.create(file=("a", b"x"), purpose="batch")


async def test_anthropics_client_is_told_that_its_files_are_not_offered(batches: Batches) -> None:
    async with batches.anthropic() as client:
        with pytest.raises(anthropic.NotFoundError, match="Anthropic's files are not offered here") as caught:
            await client.beta.files.upload(file=("a.txt", b"x"))
        assert caught.value.type == "not_found_error"


async def test_an_upload_that_is_none_is_refused(batches: Batches) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=batches.url, headers=headers, timeout=120) as client:
        sent: dict[str, Any]
        for sent, status, says in (
            ({"data": {"purpose": "batch"}}, 400, "file: send the file's bytes"),
            ({"files": {"file": b"x"}, "data": {"purpose": "assistants"}}, 400, "purpose: only 'batch'"),
            ({"files": {"file": b"x"}, "data": {"purpose": "batch", "expires_after[seconds]": "1"}}, 400, "3,600"),
            ({"content": b"no form", "headers": {"content-type": "multipart/form-data"}}, 400, "boundary"),
            ({"json": {"purpose": "batch"}}, 400, "file: send"),
        ):
            answer = await client.post("/v1/files", **sent)
            assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text
        assert (await client.get("/v1/files", headers={"authorization": "Bearer bk-wrong"})).status_code == 401
        assert (await client.get("/v1/files", headers={"authorization": "Bearer bk-viewer"})).status_code == 403
