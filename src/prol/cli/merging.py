"""`prol merge`: one saved learner out of several that learnt apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a
from prol.cli.models import Weights


def merge(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `prol export` or `learner.save` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    base: Annotated[
        Path | None, typer.Option(help="The saved learner that all of them went on from, if there was one.")
    ] = None,
    note: Annotated[str, typer.Option(help="Words of your own for operations.jsonl.")] = "",
    backbone: Weights = None,
    device: a.Device = "auto",
) -> None:
    """Put saved learners together into what one would be that learnt it all; refused where that is not exact."""
    from prol.artifacts.merged_folder import merge_folders
    from prol.cli.terminal import output

    merged = merge_folders(folders, out, base, backbone=backbone, device=device, note=note)
    counts = merged.class_counts()
    images = "" if counts is None else f" of {round(float(counts.sum())):,} images"
    told = (
        f"{merged.name} with {len(merged.classes):,} classes{images}, out of {len(folders)} learners, written to {out}"
    )
    output().print(told, soft_wrap=True)
