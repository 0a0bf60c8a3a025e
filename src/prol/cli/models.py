"""`prol export` and `prol predict`: a learner to keep, and asking it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a

if TYPE_CHECKING:
    from prol.artifacts.asking import Asked
    from prol.datasets import Unreadable
    from prol.report.predictions import Predicted

UNREADABLE = 1

Weights = Annotated[
    str | None, typer.Option("--backbone", help="Where the weights are now, ARCH@FILE.safetensors; as then by default.")
]


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, finished or stopped.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write; a saved learner in it is replaced.")],
    backbone: Weights = None,
    device: a.Device = "auto",
    least_count: Annotated[int, typer.Option(help="Leave out classes of fewer images than this.")] = 0,
) -> None:
    """Write what a run has learnt as a folder to keep: tensors, meta.json and a model card."""
    from prol.cli.terminal import output
    from prol.runs.export import export as write

    learner = write(run, folder, _tell, backbone, device, least_count)
    console = output()
    console.print(f"{learner.name} with {len(learner.classes):,} classes, written to {folder}", soft_wrap=True)
    console.print(f"Ask it with `prol predict {folder} IMAGES...`", soft_wrap=True)


def predict(
    folder: Annotated[
        Path, typer.Argument(help="A folder that `prol export` or `learner.save` wrote, or hub:OWNER/NAME[@REVISION].")
    ],
    images: Annotated[list[str], typer.Argument(help="Files, folders that are searched for images, or patterns.")],
    top: Annotated[int, typer.Option(help="How many answers to each image.")] = 1,
    form: Annotated[str, typer.Option("--format", help="table, json or csv.")] = "table",
    out: Annotated[Path | None, typer.Option(help="File to write in place of printing.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Images that go through the network together; 64 on a CPU, 256 on a GPU.")
    ] = None,
    backbone: Weights = None,
    device: a.Device = "auto",
    workers: a.Workers = None,
) -> None:
    """Say what a saved learner sees in images: a class, and how probable it is.

    Images that cannot be read are named on standard error, and the exit status is then 1.
    """
    import os

    from prol.artifacts.asking import ask
    from prol.datasets.given_images import find_images
    from prol.loading import load
    from prol.report.predictions import prediction_format

    for name, value in (("top", top), ("batch", batch)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    write = prediction_format(form)
    given = find_images(images)
    if not given.paths:
        raise ValueError("no images: " + "; ".join(f"{name}: {reason}" for name, reason in given.missing))
    learner = load(folder, backbone, device=device)
    if not learner.classes:
        raise ValueError(f"{folder} has learnt nothing yet: it has no answer")
    bad = [f"{name}: {reason}" for name, reason in given.missing]
    threads = (os.cpu_count() or 2) // 2 if workers is None else workers
    asked = ask(learner, given.paths, top=top, batch=batch, workers=threads)
    _write(write(_answered(asked, bad)), out)
    for text in bad:
        _tell(f"cannot read {text}")
    if bad:
        raise typer.Exit(UNREADABLE)


def _answered(asked: Iterable[Asked | Unreadable], bad: list[str]) -> Iterator[Predicted]:
    """What could be answered; the rest is noted in `bad`."""
    from prol.datasets import Unreadable

    for one in asked:
        if isinstance(one, Unreadable):
            bad.append(f"{one.path}: {one.reason}")
        else:
            yield one.image, one.answers


def _write(pieces: Iterable[str], out: Path | None) -> None:
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    from prol.artifacts.atomic import write_file

    def fill(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)

    write_file(out, fill)


def _tell(text: str) -> None:
    print(f"prol: {' '.join(text.split())}", file=sys.stderr)
