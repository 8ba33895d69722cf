"""The client of an encrypted Redis: a TLS server that answers every command with PONG."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from gateway.storage.redis.client import connect_bytes
from tests.unit.backends.http.exact_server import server
from tests.unit.backends.http.test_http1_tls import self_signed


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        if line.startswith(b"*"):
            writer.write(b"+PONG\r\n")


async def test_certificates_that_were_renewed_are_read_again_without_a_new_start(tmp_path: Path) -> None:
    """Connections are kept, and each kept the certificates of its first connect: the server's authority, and our own
    certificate, which may be renewed every day."""
    self_signed(tmp_path)
    (tmp_path / "certificate.pem").rename(tmp_path / "authority.pem")
    async with server(answer, self_signed(tmp_path)) as url:
        port = urlsplit(url).port
        client = connect_bytes(
            f"rediss://127.0.0.1:{port}/0?ssl_cert_reqs=required&ssl_ca_certs={tmp_path}/authority.pem"
        )
        with pytest.raises(ConnectionLost, match="certificate verify failed"):
            await client.ping()
        (tmp_path / "certificate.pem").rename(tmp_path / "authority.pem")
        assert await client.ping()
        await client.aclose()
