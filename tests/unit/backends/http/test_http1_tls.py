"""Whom the HTTP client trusts: a certificate that nobody vouches for hears nothing of a request."""

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from backends.errors import ConnectFailed
from backends.protocol import Timeouts
from tests.unit.backends.http.test_http1_client import OK, client, fetch, says, server


async def test_a_certificate_nobody_vouches_for_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    async with server(handler, self_signed(tmp_path)) as url, client() as made:
        with pytest.raises(ConnectFailed, match="is refused: self-signed certificate; SSL_CERT_FILE can"):
            await made.send("POST", url, {"authorization": "Bearer secret"}, b"{}", timeouts=Timeouts())
    assert not any(seen)


async def test_a_certificate_of_another_name_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with server(says(OK), tls) as url, client() as made:
        with pytest.raises(ConnectFailed, match=r"its certificate is refused: Hostname mismatch\)$"):
            await fetch(made, url.replace("127.0.0.1", "localhost"))


async def test_tls_to_whom_we_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    async with server(says(OK), tls) as url, client() as made:
        assert await fetch(made, url) == (200, b"ok")


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
