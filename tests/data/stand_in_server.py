"""A web server that stands in for those of the data sets' owners, with the faults that servers have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class StandIn:
    """Serves one file.

    `cuts[i]` is how many bytes request i gets before the connection ends; `statuses[i]` is what it is answered in place
    of the file, where not 200. Requests beyond these lists get everything. `asked` are the Range headers received.
    """

    content: bytes
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    says_length: bool = True
    address: str = ""
    asked: list[str | None] = field(default_factory=list)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        number, wanted = len(self.asked), handler.headers.get("Range")
        self.asked.append(wanted)
        status = self.statuses[number] if number < len(self.statuses) else 200
        if status != 200:
            handler.send_error(status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if start and start >= len(self.content):
            handler.send_error(416)
            return
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        if self.says_length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cuts[number]] if number < len(self.cuts) else body)


@contextmanager
def serving(stand_in: StandIn) -> Iterator[StandIn]:
    """Runs the server while the block runs; `address` is that of its file."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stand_in.answer(self)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stand_in.address = f"http://127.0.0.1:{server.server_address[1]}/files/set.tar"
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
