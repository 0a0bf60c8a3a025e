"""`prol export`, `predict`, `audit`, `merge`, `onnx`, `push` and `pull`: saved learners written, used and shared."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

if TYPE_CHECKING:
    from prol.data import Unreadable

UNREADABLE = STORES_SAMPLES = 1


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, finished or not.")],
    folder: Annotated[Path, typer.Argument(help="The folder to write; a saved learner in it is replaced.")],
    backbone: a.Weights = None,
    device: a.Device = "auto",
    method: a.SavedMethod = None,
    least_count: Annotated[int, typer.Option(help="Omit classes of fewer images than this.")] = 0,
) -> None:
    """Write what a run has learnt as a saved learner: tensors, meta.json and a model card."""
    from prol.runs.export import export as write

    learner = write(run, folder, warn, backbone, device, least_count, method)
    console = output()
    console.say(f"{learner.name} with {len(learner.classes):,} classes, written to {folder}")
    console.say(f"Predict with `prol predict {folder} IMAGES...`")


def predict(
    folder: Annotated[
        Path, typer.Argument(help="A folder that `prol export` or `learner.save` wrote, or hub:OWNER/NAME[@REVISION].")
    ],
    images: Annotated[list[str], typer.Argument(help="Files, folders that are searched for images, or patterns.")],
    top: Annotated[int, typer.Option(min=1, help="The number of predictions per image.")] = 1,
    form: Annotated[str, typer.Option("--format", help="The output format: table, json or csv.")] = "table",
    out: Annotated[Path | None, typer.Option(help="The file to write instead of printing.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Images per forward pass. By default 64 on a CPU, 256 on a GPU.")
    ] = None,
    backbone: a.Weights = None,
    device: a.Device = "auto",
    method: a.SavedMethod = None,
    workers: a.Workers = None,
) -> None:
    """Predict the classes of images with a saved learner.

    Images that cannot be read are named on standard error, and the exit status is then 1.
    """
    import os

    from prol.data.folder import find_images
    from prol.loading import load
    from prol.report.predictions import FORMATS
    from prol.runs.loading import predict_files

    a.require_format(form, *FORMATS)
    given = find_images(images)
    if not given.paths:
        raise ValueError("no images: " + "; ".join(f"{name}: {reason}" for name, reason in given.missing))
    learner = load(folder, backbone, device=device, method=method)
    if not learner.classes:
        raise ValueError(f"{folder} has learnt nothing yet: it cannot predict")
    bad = [f"{name}: {reason}" for name, reason in given.missing]

    def skip(one: Unreadable) -> None:
        bad.append(f"{one.path}: {one.reason}")

    threads = (os.cpu_count() or 2) // 2 if workers is None else workers
    predicted = predict_files(learner, given.paths, skip, top=top, batch=batch, workers=threads)
    _write(FORMATS[form](predicted), out)
    for text in bad:
        warn(f"cannot read {text}")
    if bad:
        raise typer.Exit(UNREADABLE)


def audit(
    folder: Annotated[Path, typer.Argument(help="The folder of a saved learner or of a run.")],
    few: Annotated[int, typer.Option(help="Name classes of fewer images than this.")] = 5,
    images: Annotated[
        int, typer.Option(help="Synthetic images that fresh learners are trained on, then more of them.")
    ] = 32,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list every tensor and file, and what the search for images found.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if samples are stored, or anything grows with them.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help="The output format: table or json.")] = "table",
    out: Annotated[Path | None, typer.Option(help="The file to write instead of printing.")] = None,
    backbone: a.Weights = None,
    device: a.Device = "auto",
    method: a.SavedMethod = None,
) -> None:
    """Say what is stored: whether tensors grow with samples, and whether a search finds single images in them."""
    import json

    from prol.runs.export import audit_folder

    a.require_format(form, "table", "json")
    found = audit_folder(folder, warn, backbone, device, few, images, method)
    _write(
        [json.dumps(found, indent=2, ensure_ascii=False) + "\n" if form == "json" else _audit_table(found, everything)],
        out,
    )
    if strict and not found["keeps_no_samples"]:
        raise typer.Exit(STORES_SAMPLES)


def _audit_table(found: dict[str, object], everything: bool) -> str:
    from rich.console import Console

    from prol.report.audit import audit_tables

    console = Console(width=140, no_color=True, highlight=False, markup=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(audit_tables(found, everything))
    return captured.get()


def merge(
    folders: Annotated[list[Path], typer.Argument(help="Folders that `prol export` or `learner.save` wrote.")],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist.")],
    base: Annotated[
        Path | None, typer.Option(help="The saved learner from which all of them continued, if there was one.")
    ] = None,
    note: Annotated[str, typer.Option(help="A note for operations.jsonl.")] = "",
    backbone: a.Weights = None,
    device: a.Device = "auto",
) -> None:
    """Merge saved learners into what one learner would be that learnt it all; refused where that is not exact."""
    from prol.runs.saved_folders import merge_folders

    merged = merge_folders(folders, out, base, backbone=backbone, device=device, note=note)
    counts = merged.class_counts()
    images = "" if counts is None else f" of {round(float(counts.sum())):,} images"
    line = f"{merged.name} with {len(merged.classes):,} classes{images}, from {len(folders)} learners, written to {out}"
    output().say(line)


def _write(pieces: Iterable[str], out: Path | None) -> None:
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    from prol.files import write_file

    def fill(unfinished: Path) -> None:
        with unfinished.open("w", encoding="utf-8", newline="") as file:
            file.writelines(pieces)

    write_file(out, fill)


def warn(text: str) -> None:
    """Prints one line to standard error."""
    print(f"prol: {' '.join(text.split())}", file=sys.stderr)


Repository = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The repository on the hub.")]


def onnx(
    folder: a.Saved,
    file: Annotated[Path, typer.Argument(help="The file to write, such as model.onnx; an existing one is replaced.")],
    backbone: a.Weights = None,
    unknown: Annotated[
        bool, typer.Option("--unknown/--no-unknown", help="Export the outputs unknown and familiarity, too.")
    ] = True,
) -> None:
    """Write a saved learner as an ONNX model, after onnxruntime was found to agree with it.

    It takes uint8 RGB images [N, H, W, 3] and returns scores and probabilities [N, C], and for most methods `unknown`
    [N]. It contains the weights of the backbone.
    """
    from prol.backbones.terms import weights_terms
    from prol.integrations.onnx import export_onnx
    from prol.runs.loading import load, read_checked

    learner = load(folder, backbone, device="cpu", precision="float32")
    notes = {"model_sha256": read_checked(folder.resolve())[0]["model_sha256"]}
    parity = export_onnx(learner, file, notes, unknown)
    console, terms = output(), weights_terms(learner.backbone.name)
    size = file.stat().st_size / 1e6
    line = f"{learner.name} with {len(learner.classes):,} classes, written to {file} ({size:,.1f} MB)"
    console.say(line)
    console.say(f"onnxruntime agrees: {parity}")
    if parity.without_unknown:
        console.say(f"It has no output `unknown`: {parity.without_unknown}")
    console.say(f"The file holds the weights {terms.title}: {terms.words}")


def push(
    folder: a.Saved,
    repository: Repository,
    private: Annotated[bool, typer.Option("--private", help="Make the repository private.")] = False,
    revision: Annotated[str | None, typer.Option(help="The branch. By default main.")] = None,
) -> None:
    """Upload a saved learner to the Hugging Face hub: its tensors, meta.json and model card, nothing else."""
    from prol.integrations.hub import push as send

    _no_bars_in_files()
    sent = send(folder, repository, private=private, revision=revision)
    output().say(f"{folder} is now {sent.repository} at commit {sent.commit}")


def pull(
    repository: Repository,
    folder: Annotated[Path, typer.Argument(help="The folder to write; a saved learner in it is replaced.")],
    revision: Annotated[str | None, typer.Option(help="A branch, a tag or a commit. By default main.")] = None,
) -> None:
    """Download a saved learner from the Hugging Face hub, complete and with the right checksum, or not at all."""
    from prol.integrations.hub import pull as fetch

    _no_bars_in_files()
    fetched = fetch(repository, folder, revision=revision)
    console = output()
    console.say(f"{fetched.repository} at commit {fetched.commit}, written to {folder}")
    console.say(f"Predict with `prol predict {folder} IMAGES...`")


def _no_bars_in_files() -> None:
    if not sys.stderr.isatty():
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
