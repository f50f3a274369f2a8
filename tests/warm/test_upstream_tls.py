"""TLS to an upstream: trusted by a CA file, refused without, or not looked at."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.aio.clock import SystemClock
from gateway.protocol.errors import ConfigError, UpstreamLost
from gateway.upstream.http import Http
from gateway.upstream.options import UrlOptions
from tests.warm.raw_servers import RESULT, RawServer, Request, plain, says, serve, until

DAY = datetime.timedelta(days=1)


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "cert.pem"
    pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = folder / "key.pem"
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem, secret)
    return pem, context


def client(server: RawServer, host: str = "127.0.0.1", **more: object) -> Http:
    options = UrlOptions(name="x", url=f"https://{host}:{server.port}/mcp", **more)  # pyright: ignore[reportArgumentType]
    return Http(options, SystemClock())


async def settled(server: RawServer) -> None:
    await until(lambda: not (server.open))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_certificate_of_the_ca_file_is_trusted_and_the_connection_reused(
    tmp_path: Path, host: str
) -> None:
    pem, context = self_signed(tmp_path)
    names: list[str | None] = []
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    async with serve(says(plain(RESULT)), context) as server:
        http = client(server, host, ca_file=str(pem))
        for _ in range(3):
            reply = await http.forward("POST", [], b"{}")
            assert await reply.read(1000) == RESULT
        assert server.connections == 1
        assert names == ["localhost" if host == "localhost" else None]
        await http.close()
        await settled(server)


async def test_a_self_signed_certificate_is_refused_in_words(tmp_path: Path) -> None:
    _, context = self_signed(tmp_path)
    async with serve(says(plain(RESULT)), context) as server:
        http = client(server)
        with pytest.raises(UpstreamLost, match="is not trusted: self-signed certificate") as caught:
            await http.forward("POST", [], b"{}")
        assert not caught.value.sent
        assert http.connections == 0
        await http.close()
        await settled(server)


async def test_verification_can_be_switched_off_and_large_bodies_cross(tmp_path: Path) -> None:
    _, context = self_signed(tmp_path)

    async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(plain(request.body))

    async with serve(echo, context) as server:
        http = client(server, verify_tls=False)
        body = bytes(range(256)) * 8192
        reply = await http.forward("POST", [], body)
        assert await reply.read(4_000_000) == body
        await http.close()
        await settled(server)


async def test_plain_http_where_tls_is_expected_is_told_in_words() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(plain(b"speak HTTP", "400 Bad Request"))
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    http = Http(UrlOptions(name="x", url=f"https://127.0.0.1:{port}/"), SystemClock())
    with pytest.raises(UpstreamLost, match="the TLS handshake with the upstream failed"):
        await http.forward("POST", [], b"{}")
    await http.close()
    listener.close()


async def test_a_ca_file_that_is_none_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("nothing")
    for name in ("missing", "empty"):
        with pytest.raises(ConfigError, match="ca_file"):
            Http(UrlOptions(name="x", url="https://h/", ca_file=str(tmp_path / name)), SystemClock())
