"""`prol onnx`, `prol push` and `prol pull`: a saved learner for other programs, and for other people."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

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
