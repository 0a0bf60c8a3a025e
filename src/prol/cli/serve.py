"""`prol serve`: a learner over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a

_NEW, _WHO, _LIMITS = "A new learner", "Who may connect", "Limits"


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A saved learner, or a folder to create one in.")],
    host: Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=_WHO)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", rich_help_panel=_WHO)] = 8000,
    read_token_file: Annotated[
        Path | None, typer.Option(help="File with the read token; or PROL_READ_TOKEN.", rich_help_panel=_WHO)
    ] = None,
    write_token_file: Annotated[
        Path | None, typer.Option(help="File with the write token; or PROL_WRITE_TOKEN.", rich_help_panel=_WHO)
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="A name that `prol methods` lists; prol_plus by default.", rich_help_panel=_NEW)
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="small by default; of a saved learner, where its weights are now."),
    ] = None,
    image_size: a.ImageSize = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An option of the method; may be repeated.", rich_help_panel=_NEW),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of a new learner.", rich_help_panel=_NEW)] = 0,
    device: a.Device = "auto",
    threads: a.Threads = None,
    checkpoints: Annotated[int, typer.Option(help="Checkpoints stored in DIR/service, at least 2.")] = 2,
    body_bytes: Annotated[int, typer.Option(help="Of a request.", rich_help_panel=_LIMITS)] = 64 * 2**20,
    body_seconds: Annotated[float, typer.Option(help="To send it in.", rich_help_panel=_LIMITS)] = 60.0,
    images: Annotated[int, typer.Option(help="In a request.", rich_help_panel=_LIMITS)] = 256,
    pixels: Annotated[int, typer.Option(help="Of an image.", rich_help_panel=_LIMITS)] = 25_000_000,
    request_pixels: Annotated[int, typer.Option(help="Of a request.", rich_help_panel=_LIMITS)] = 100_000_000,
    memory_bytes: Annotated[int, typer.Option(help="Of all requests in progress.", rich_help_panel=_LIMITS)] = 2**30,
    queue_size: Annotated[int, typer.Option(help="Requests that wait to be learnt.", rich_help_panel=_LIMITS)] = 64,
    queue: Annotated[int | None, typer.Option(hidden=True, help="The former name of --queue-size.")] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second from one client; unlimited by default.", rich_help_panel=_LIMITS),
    ] = None,
    pending_images: Annotated[
        int, typer.Option(help="Images that wait for a late label.", rich_help_panel=_LIMITS)
    ] = 10_000,
    pending_bytes: Annotated[int, typer.Option(help="Memory for them.", rich_help_panel=_LIMITS)] = 256 * 2**20,
    pending_seconds: Annotated[float, typer.Option(help="How long they wait.", rich_help_panel=_LIMITS)] = 600.0,
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

    if threads is not None:
        import torch

        if threads < 1:
            raise ValueError(f"threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
    limits = Limits(
        body_bytes=body_bytes,
        body_seconds=body_seconds,
        images=images,
        pixels=pixels,
        request_pixels=request_pixels,
        memory_bytes=memory_bytes,
        queue=queue_size if queue is None else queue,
        rate=rate,
        pending_images=pending_images,
        pending_bytes=pending_bytes,
        pending_seconds=pending_seconds,
    )
    network = backbone if image_size is None else a.sized(backbone or "auto", image_size)
    options = ServeOptions(method, network, parse_pairs(option or []), seed, device, checkpoints)
    tokens = Tokens.of(read_token(read_token_file, "PROL_READ_TOKEN"), read_token(write_token_file, "PROL_WRITE_TOKEN"))
    run(folder, options, limits, tokens, host, port)
