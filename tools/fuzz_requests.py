"""Requests to a served learner, whole and broken, as `fuzz.py` mutates them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from random import Random
from typing import Any

from fuzz_inputs import Content, Kind, Violation, valid_images
from fuzz_mutations import edited, spoil

LIMITS = ("--body-bytes", "3000000", "--images", "4", "--pixels", "1000000", "--request-pixels", "2000000")
PENDING = "PENDING-IMAGE-ID-00000"
"""Stands for the id of an image that was predicted before, and is as long."""
UNKNOWN_PLACES = (
    *("400 bad_request", "404 not_found", "403 foreign_host", "403 foreign_origin", "400", "405"),
    *("405 not_allowed", "405 method_not_allowed", "closed", "400 Bad Request", "closed, incomplete"),
)
_BOUNDARY = "----a-boundary"


class Requests(Kind):
    """Requests to `prol serve`. First check: they are HTTP, complete, and for a host and a route that exist."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        from runs.small_runs import environment, write_small_vit

        self.images = [data for data in valid_images(Random(0)) if len(data) < 5000]
        self.valid = self._valid()
        self.ids = [PENDING]
        command = [sys.executable, "-m", "prol", "serve", str(place / "served"), "--port", "0", "--device", "cpu"]
        command += ["--method", "ncm", "--backbone", write_small_vit(place), "--pending-bytes", "50000000", *LIMITS]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), text=True)
        self.process = self.server.pid
        assert self.server.stdout is not None
        for line in self.server.stdout:
            if line.startswith("serving "):
                self.address = ("127.0.0.1", int(line.rpartition(":")[2]))
                break
        else:
            raise RuntimeError("the server did not start")
        for method, path, kind, body in self.valid:
            self.give({"request": whole(method, path, kind, body)})

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()

    def _valid(self) -> list[tuple[str, str, str, bytes]]:
        image, other = self.images[:2]
        forms = f"multipart/form-data; boundary={_BOUNDARY}"
        documents: dict[tuple[str, str], Any] = {
            ("POST", "/labels"): {"labels": [{"id": PENDING, "label": "ant"}]},
            ("POST", "/predict/again?top=2"): {"ids": [PENDING]},
            ("PATCH", "/classes/ant"): {"label": "bee"},
            ("POST", "/classes/bee/merge"): {"into": "ant"},
        }
        return [
            ("POST", "/learn", forms, form(("images", "a.png", image), ("labels", None, b"ant"))),
            ("POST", "/learn", forms, form(("images", "b.png", other), ("labels", None, b"bee"))),
            (
                "POST",
                "/learn",
                forms,
                form(("images", "a", image), ("labels", None, b"3"), ("integers", None, b"true")),
            ),
            ("POST", "/predict?top=3", forms, form(("images", "a.png", image), ("images", "b.png", other))),
            ("POST", "/predict", forms, form(("images", "a.png", image))),
            *((method, path, "application/json", json.dumps(it).encode()) for (method, path), it in documents.items()),
            ("DELETE", "/classes/3?integer=true", "", b""),
            *(("POST", path, "", b"") for path in ("/undo",)),
            *(("GET", path, "", b"") for path in ("/status", "/classes", "/metrics", "/healthz", "/export", "/")),
        ]

    def draw(self, random: Random) -> Content:
        method, path, kind, body = random.choice(self.valid)
        how = random.random()
        if how < 0.3:
            return {"request": spoil(whole(method, path, kind, body), random)}
        if how < 0.5:
            head, _, rest = whole(method, path, kind, body).partition(b"\r\n\r\n")
            return {"request": spoil(head, random, 1) + b"\r\n\r\n" + rest}
        if how < 0.6:
            path = "/" + spoil(path[1:].encode(), random, 1).decode("latin-1")
            path = "".join(sign if "!" <= sign <= "~" else f"%{ord(sign):02x}" for sign in path)
        elif kind == "application/json" and how < 0.95:
            body = json.dumps(edited(json.loads(body), random)).encode()
        elif kind.startswith("multipart") and how < 0.8:
            image = spoil(random.choice(self.images), random)
            parts: list[tuple[str, str | None, bytes]] = [("images", "a.png", image)]
            if path == "/learn":
                parts.append(("labels", None, spoil(b"ant", random, 1) if random.random() < 0.3 else b"ant"))
            body = form(*parts)
        else:
            body = spoil(body, random)
        return {"request": whole(method, path, kind, body)}

    def give(self, content: Content) -> str:
        self.outcome = ""
        self.outcome = self._answered(content)
        return self.outcome

    def _answered(self, content: Content) -> str:
        request = content["request"].replace(PENDING.encode(), self.ids[0].encode())
        try:
            with socket.create_connection(self.address, timeout=10) as connection:
                return self._sent(connection, request)
        except TimeoutError:
            raise Violation("hang") from None
        except ConnectionRefusedError as error:
            raise Violation("the server is gone") from error
        except (ConnectionError, HTTPException):
            return "closed"

    def _sent(self, connection: socket.socket, request: bytes) -> str:
        try:
            connection.sendall(request)
            if not is_complete(request):
                connection.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # it was refused before it was sent; the response may be there
        response = HTTPResponse(connection)
        response.begin()
        body = response.read()
        if response.status >= 500:
            raise Violation(f"{response.status} {body[:300]!r}")
        if response.status >= 400:
            try:
                return f"{response.status} {json.loads(body)['error']['code']}"
            except (ValueError, KeyError, TypeError):
                return str(response.status)
        if response.status == 200 and b'"predictions"' in body:
            self.ids = [one["id"] for one in json.loads(body)["predictions"] if "id" in one] or self.ids
        return str(response.status)

    def passed(self, content: Content) -> bool:
        del content  # the server has checked it
        return self.outcome not in UNKNOWN_PLACES


def whole(method: str, path: str, kind: str, body: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {kind}"] if kind else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def form(*parts: tuple[str, str | None, bytes]) -> bytes:
    body = b""
    for name, file, content in parts:
        named = f'form-data; name="{name}"' + (f'; filename="{file}"' if file is not None else "")
        body += f"--{_BOUNDARY}\r\nContent-Disposition: {named}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{_BOUNDARY}--\r\n".encode()


def is_complete(request: bytes) -> bool:
    """Whether a server has no reason to wait for more; if in doubt it has one."""
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2].strip() for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
    known = len(lengths) == 1 and lengths[0].isdigit() and b"\n" not in head.replace(b"\r\n", b"")
    return bool(end) and known and len(body) >= int(lengths[0][:18]) and b"chunked" not in head.lower()
