"""`prol serve`: a learner over HTTP."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a

_NEW, _WHO, _LIMITS, _SEVERAL = "A new learner", "Who may connect", "Limits", "Several learners"


@dataclass(frozen=True)
class LimitFlags:
    """The limits of `prol.serve.settings.Limits` that can be chosen."""

    body_bytes: int = a.flag("The maximum size of a request.", _LIMITS, default=64 * 2**20)
    body_seconds: float = a.flag("How long a client may take to send a request.", _LIMITS, default=60.0)
    header_seconds: float = a.flag("How long a client may take to send the headers.", _LIMITS, default=10.0)
    connections: int = a.flag("The maximum number of open connections.", _LIMITS, default=512)
    connections_per_address: int = a.flag("The maximum number of them from one address or proxy.", _LIMITS, default=128)
    images: int = a.flag("The maximum number of images in a request.", _LIMITS, default=256)
    pixels: int = a.flag("The maximum number of pixels of an image.", _LIMITS, default=25_000_000)
    request_pixels: int = a.flag(
        "The maximum number of pixels of all images in a request.", _LIMITS, default=100_000_000
    )
    memory_bytes: int = a.flag("The maximum memory of all requests in progress.", _LIMITS, default=2**30)
    queue_size: int = a.flag("The maximum number of requests that wait to be learnt.", _LIMITS, default=64)
    rate: float | None = a.flag("Requests per second from one client. By default unlimited.", _LIMITS)
    pending_images: int = a.flag("The maximum number of images that wait for a late label.", _LIMITS, default=10_000)
    pending_bytes: int = a.flag("The maximum memory for images that wait for a label.", _LIMITS, default=256 * 2**20)
    pending_seconds: float = a.flag("How long an image waits for its label.", _LIMITS, default=600.0)
    learners: int = a.flag("The maximum number of learners.", _SEVERAL, default=1000)
    loaded_bytes: int = a.flag(
        "The memory of loaded learners, beyond which the least recently used are written out.", _SEVERAL, default=2**30
    )


@a.with_flags
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A saved learner, or a folder to create one in.")],
    *,
    several: Annotated[
        bool,
        typer.Option(
            "--several",
            help="Serve several learners, in folders below DIR, over one network.",
            rich_help_panel=_SEVERAL,
        ),
    ] = False,
    admin_token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token that may create and delete learners. By default PROL_ADMIN_TOKEN.",
            rich_help_panel=_SEVERAL,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.", rich_help_panel=_WHO)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on; 0 picks a free one.", rich_help_panel=_WHO)] = 8000,
    read_token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the read token. By default PROL_READ_TOKEN.", rich_help_panel=_WHO),
    ] = None,
    write_token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the write token. By default PROL_WRITE_TOKEN.", rich_help_panel=_WHO),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="PEM file with a certificate and its chain: HTTPS.", rich_help_panel=_WHO)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="PEM file with the key of the certificate.", rich_help_panel=_WHO)
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="A name that `prol methods` lists. By default prol_plus.", rich_help_panel=_NEW)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="The network, by default small; or where the weights of a saved learner are."),
    ] = None,
    image_size: a.ImageSize = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the method. Repeatable.", rich_help_panel=_NEW),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of a new learner.", rich_help_panel=_NEW)] = 0,
    device: a.Device = "auto",
    threads: a.Threads = None,
    checkpoints: Annotated[int, typer.Option(help="The number of checkpoints stored in DIR/service, at least 2.")] = 2,
    journal: Annotated[
        bool, typer.Option(help="Commit small updates between checkpoints; off, each commit writes the whole learner.")
    ] = True,
    queue: Annotated[int | None, typer.Option(hidden=True, help="The former name of --queue-size.")] = None,
    limits: LimitFlags,
) -> None:
    """Serve a learner over HTTP: it learns, predicts, takes late labels, and survives crashes.

    Everything acknowledged is on disk. SIGTERM or Ctrl-C commits waiting requests and writes the saved learner to DIR.
    """
    try:
        from prol.serve.server import serve as run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "prol":
            raise
        raise ValueError(f"{error.name} is missing: pip install 'prol[serve]'") from error
    from prol.options import parse_pairs
    from prol.serve.security import Tokens, read_token
    from prol.serve.settings import Limits, ServeOptions
    from prol.serve.tls import tls_context

    a.set_threads(threads)
    chosen = asdict(limits)
    waiting = chosen.pop("queue_size")
    chosen["queue"] = waiting if queue is None else queue
    network = backbone if image_size is None else a.sized(backbone or "auto", image_size)
    options = ServeOptions(method, network, parse_pairs(option or []), seed, device, checkpoints, journal)
    read, write = read_token(read_token_file, "PROL_READ_TOKEN"), read_token(write_token_file, "PROL_WRITE_TOKEN")
    admin = read_token(admin_token_file, "PROL_ADMIN_TOKEN") if several or admin_token_file else None
    if several and (read or write):
        raise ValueError("with --several each learner has tokens of its own: give --admin-token-file alone")
    if several and (method or option or seed):
        raise ValueError("with --several learners are created by POST /v1: leave --method, --option and --seed out")
    if admin_token_file and not several:
        raise ValueError("--admin-token-file is for --several: use --write-token-file")
    tokens = Tokens.of(read, write, admin)
    if (tls_cert is None) != (tls_key is None):
        raise ValueError("--tls-cert and --tls-key belong together: give both")
    tls = None if tls_cert is None or tls_key is None else tls_context(tls_cert, tls_key)
    run(folder, options, Limits(**chosen), tokens, host, port, tls, several)
