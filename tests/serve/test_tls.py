"""HTTPS with a self-signed certificate, and clients that never finish the handshake."""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from prol.serve.tls import tls_context
from serve.certificates import self_signed
from serve.running import Nursery, eventually, learn, picture, predict, refused_start, running
from serve.test_connections import healthy, serving, until_closed


def test_a_service_speaks_https_to_those_who_trust_its_certificate(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path / "tls")
    flags = ("--method", "ncm", "--backbone", small_vit, "--tls-cert", str(certificate), "--tls-key", str(key))
    with running(nursery, tmp_path / "model", *flags) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=server.url, verify=trusted, timeout=60) as client:
            assert learn(client, [picture(1), picture(2)], ["cat", "dog"]).status_code == 200
            eventually(lambda: predict(client, picture(1))["predictions"][0]["labels"])
            large = [picture(number, 400) for number in range(4)]  # more than one TLS record, and than one read
            assert len(predict(client, *large)["predictions"]) == 4
            foreign = client.post("/undo", headers={"Origin": "https://example.org"})
            assert foreign.json()["error"]["code"] == "foreign_origin"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/healthz")
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http") + "/healthz")
        assert server.end() == 0


def test_a_missing_a_wrong_and_an_encrypted_key_are_named(nursery: Nursery, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path / "one")
    _, other = self_signed(tmp_path / "other")
    _, encrypted = self_signed(tmp_path / "encrypted", password=b"secret")
    for wrong, message in [
        (tmp_path / "none.pem", "is not there"),
        (other, "are not a certificate and its key"),
        (certificate, "are not a certificate and its key"),
        (encrypted, "is encrypted"),
    ]:
        with pytest.raises(ValueError, match=message):
            tls_context(certificate, wrong)
    said = refused_start(nursery, tmp_path / "model", "--tls-cert", str(certificate))
    assert said == "prol: --tls-cert and --tls-key belong together: give both\n"
    assert tls_context(certificate, key).minimum_version >= ssl.TLSVersion.TLSv1_2


def test_unfinished_handshakes_are_counted_and_ended(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    client = ssl.create_default_context(cafile=str(certificate))
    with serving(tls_context(certificate, key), header_seconds=1.5, connections_per_address=3) as here:
        with ExitStack() as stack:
            silent = [stack.enter_context(here.connect()) for _ in range(3)]
            eventually(lambda: not here.admits(client))
            assert here.activity.refused["too_many_connections"] >= 1
            assert [until_closed(one) for one in silent] == [b""] * 3
        eventually(lambda: here.admits(client))
        with client.wrap_socket(here.connect(), server_hostname="localhost") as connection:
            assert healthy(connection), "requests are served after that"
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert b"408" in until_closed(connection), "and headers have their own time limit"
