"""What the verbs of `prol bench` share: reading their arguments, and keeping what was measured."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.bench.subject import Subject
    from prol.bench.timing import Pace
    from prol.datasets import Dataset

FAILED = 1


class Record:
    """Measurements as they come in, written after each row: a run that is stopped keeps what it has.

    Everything that would keep them from being written or drawn is told before anything is measured.
    """

    def __init__(
        self,
        bench: str,
        out: Path | None,
        device: str,
        threads: int | None,
        settings: dict[str, Any],
        plot: Path | None = None,
    ) -> None:
        import torch

        from prol.backbones import pick_device
        from prol.bench.machine import document
        from prol.report.plot import check_figure_file, require_matplotlib

        if out is not None and not out.absolute().parent.is_dir():
            raise FileNotFoundError(f"cannot write {out}: the folder {out.parent} does not exist")
        if plot is not None:
            require_matplotlib()
            check_figure_file(plot)
        if threads is not None:
            if threads < 1:
                raise ValueError(f"threads must be at least 1, got {threads}")
            torch.set_num_threads(threads)
        self.out = out
        command = shlex.join(["prol", *sys.argv[1:]])
        self.content = document(bench, pick_device(device), command, settings)

    def opened(self, backbone: Backbone) -> None:
        """Says which network is measured."""
        self.content["settings"] |= {
            "backbone": backbone.name,
            "sha256": backbone.sha256,
            "precision": backbone.precision,
        }

    def paced(self, pace: Pace) -> Pace:
        """Says how often everything is done."""
        self.content["settings"]["pace"] = asdict(pace)
        return pace

    def add(self, row: dict[str, Any]) -> None:
        from prol.report.bench import line

        self.content["rows"].append(row)
        typer.echo(line(row), err=True)
        self.write()

    def write(self) -> None:
        from prol.files import write_json

        if self.out is not None:
            write_json(self.out, self.content)


def finish(record: Record, plot: Path | None = None) -> None:
    """Prints what was measured; the command fails where a row did."""
    record.write()
    print_content(record.content, plot)
    if record.out is not None:
        typer.echo(f"Written to {record.out}")
    if any("error" in row for row in record.content["rows"]):
        raise typer.Exit(FAILED)


def print_content(content: dict[str, Any], plot: Path | None) -> None:
    """The table, and the picture if one is asked for."""
    from prol.cli.terminal import output
    from prol.report.bench import bench_tables, plot_bench

    console = output()
    console.print(bench_tables(content))
    if plot is not None:
        try:
            plot_bench(content, plot)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{plot} cannot be drawn: what was measured {_damaged(error)}") from error
        console.print(f"Plot written to {plot}", soft_wrap=True)


def read_subject(word: str) -> Subject:
    """METHOD:KEY=VALUE,... as `prol compare` takes it."""
    from prol.bench.subject import Subject
    from prol.runs.plan import read_method

    return Subject(*read_method(word))


def whole_numbers(option: str, text: str, least: int = 1) -> list[int]:
    """Numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise ValueError(f"{option} {text!r} is not a list of whole numbers from {least} on: write it as 10,100")
    return [int(part) for part in parts]


def open_images(word: str, data: str | None, options: list[str]) -> Dataset:
    """A data set by its name, or a folder of images."""
    from prol import registry
    from prol.options import bind_arguments, parse_pairs

    name, where = word, data
    if word not in registry.names("datasets") and Path(word).expanduser().is_dir():
        if data is not None:
            raise ValueError(f"{word!r} is a folder already: leave out --data")
        name, where = "folder", word
    open_dataset = registry.dataset(name)
    return open_dataset(data=where, **bind_arguments(open_dataset, parse_pairs(options), ("data",)))


def read_content(file: Path) -> dict[str, Any]:
    """A file that `--out` wrote, with all that its tables need."""
    from prol.bench.machine import FORMAT
    from prol.report.bench import bench_tables, require_table

    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise FileNotFoundError(f"{file} {what}: give a file that `prol bench ... --out FILE` wrote")
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    whole = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("bench"), str)
    if not whole:
        raise ValueError(
            f"{file} holds no measurements of this version of prol: "
            "give a file that `prol bench ... --out FILE` wrote, or measure again"
        )
    require_table(content["bench"])
    try:
        bench_tables(content)
    except Exception as error:  # strange files fail in strange ways
        raise ValueError(f"{file} {_damaged(error)}") from error
    return content


def _damaged(error: Exception) -> str:
    missing = f"no {error}" if isinstance(error, KeyError) else str(error)
    return f"is damaged or of another version of prol ({missing}): measure again with `prol bench ... --out FILE`"
