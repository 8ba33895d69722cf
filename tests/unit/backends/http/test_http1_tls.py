"""Which certificates the HTTP client trusts: with any other, nothing of a request is sent."""

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
from tests.unit.backends.http.exact_server import OK, client, fetch, says, server

LOOPBACK = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
CA = x509.BasicConstraints(ca=True, path_length=None)


async def test_a_certificate_nobody_vouches_for_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(100))

    async with server(handler, self_signed(tmp_path)) as url, client() as made:
        with pytest.raises(ConnectFailed, match="is refused: self-signed certificate; if it is from your own CA"):
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


async def test_authorities_that_were_renewed_are_trusted_without_a_new_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
    self_signed(tmp_path)
    (tmp_path / "certificate.pem").rename(tmp_path / "authorities.pem")
    async with server(says(OK), self_signed(tmp_path)) as url, client() as made:
        with pytest.raises(ConnectFailed, match="its certificate is refused"):
            await fetch(made, url)
        (tmp_path / "certificate.pem").rename(tmp_path / "authorities.pem")
        assert await fetch(made, url) == (200, b"ok")


async def test_what_a_ca_of_old_left_out_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.13 and later are this strict by default: certificates accepted by 3.12 are rejected after an upgrade."""
    tls = issued_by_an_own_ca(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    create = ssl.create_default_context

    def strict() -> ssl.SSLContext:
        context = create()
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    async with server(says(OK), tls) as url, client() as made:
        with pytest.raises(ConnectFailed, match=r"refused: Missing Authority Key Identifier; since Python 3\.13"):
            await fetch(made, url)


def self_signed(folder: Path) -> ssl.SSLContext:
    key, name = ec.generate_private_key(ec.SECP256R1()), named("test")
    certificate = (
        unsigned(name, name, key).add_extension(LOOPBACK, critical=False).add_extension(CA, critical=True)
    ).sign(key, hashes.SHA256())
    return serving(folder, key, certificate)


def issued_by_an_own_ca(folder: Path) -> ssl.SSLContext:
    """A certificate as short guides create it: it lacks the authority key identifier, and its CA's lacks the key
    usage."""
    key, authority_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = named("authority")
    authority = unsigned(name, name, authority_key).add_extension(CA, critical=True)
    certificate = unsigned(name, named("test"), key).add_extension(LOOPBACK, critical=False)
    (folder / "ca.pem").write_bytes(pem(authority.sign(authority_key, hashes.SHA256())))
    return serving(folder, key, certificate.sign(authority_key, hashes.SHA256()))


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def unsigned(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    return made.not_valid_before(now - day).not_valid_after(now + day)


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def serving(folder: Path, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> ssl.SSLContext:
    plain = serialization.NoEncryption()
    written = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(written)
    (folder / "certificate.pem").write_bytes(pem(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context
