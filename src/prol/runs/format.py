"""The format of a saved learner: names and content of its files, and reading files that anybody may have written."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

import prol
from prol.classes import Label, read_labels, require_distinct
from prol.files import UnsafeFile, create_file, open_regular, read_text
from prol.runfiles import Backbone
from prol.typed_json import Count, problem_of

FORMAT = 1
MODEL_FILE = "model.safetensors"
NEW_MODEL_FILE = ".model.safetensors.new"
"""A model that is being written into a folder that holds other files too."""
META_FILE = "meta.json"
CARD_FILE = "README.md"
OPERATIONS_FILE = "operations.jsonl"
"""One line per operation on the classes."""
HUB_FILE = "hub.json"
"""The repository from which the folder was downloaded."""

RENAMED, MERGED, REMOVED = "renamed", "merged", "removed"
JOINED = "joined"
"""Learners were merged; the other operations change classes."""


class State(TypedDict):
    method: dict[str, Any]


class Description(TypedDict):
    """Everything besides its state that is needed to build a learner again."""

    method: str
    options: dict[str, Any]
    seed: Annotated[int, (-(2**64), 2**64)]
    precision: str
    backbone: Backbone
    preprocessing: dict[str, Any]


class Seen(TypedDict):
    images: NotRequired[Count | None]
    per_class: NotRequired[list[Count] | None]


class Meta(Description):
    """What every `meta.json` of this format has, besides the format and the version of prol.

    The file of a method outside of any package is named without its folder, which would tell of the machine.
    """

    classes: list[Any]
    state: State
    model_sha256: str
    seen: NotRequired[Seen | None]
    method_file: NotRequired[str]
    method_sha256: NotRequired[str]


LONGEST_NAME = 1000
"""Characters of the name of a method, an option or a backbone, which may be a path."""


_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib")
"""Extensions of files that are usually pickles, which can run any code when they are opened."""


def read_meta(place: Path) -> dict[str, Any]:
    """Reads and validates `meta.json`.

    A folder that contains a pickle is refused, although none is ever opened: no saved learner has any.
    """
    if not place.is_dir():
        raise FileNotFoundError(f"no saved learner at {place}: give the folder that learner.save wrote")
    require_no_pickles((part.name for part in place.iterdir()), str(place))
    for name in (META_FILE, MODEL_FILE):
        if not (place / name).is_file():
            near = f"; that of the run is in {place / 'model'}" if (place / "model" / name).is_file() else ""
            raise FileNotFoundError(f"{place} is not a saved learner: it has no {name}{near}")
    file = place / META_FILE
    try:
        meta = json.loads(read_text(file))
        found = meta["format"]
    except UnsafeFile:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ValueError(f"{file} is damaged: {said}; copy the folder again") from error
    if found != FORMAT:
        raise ValueError(
            f"{place} has format {found!r}, this version of prol reads format {FORMAT}: use a matching prol"
        )
    problem = problem_of(meta, Meta) or long_name(meta)
    if problem is not None:
        raise ValueError(f"{file} is damaged: {problem}; copy the folder again")
    try:
        require_distinct(read_labels(meta["classes"]))
    except ValueError as error:
        raise ValueError(f"{file} is damaged: {error}; copy the folder again") from error
    return dict(meta)


def long_name(description: Mapping[str, Any]) -> str | None:
    """Says which name of a `Description` is too long to be one: names are compared with all that are known."""
    backbone = description["backbone"]
    names = {"method": description["method"], "precision": description["precision"], "backbone.name": backbone["name"]}
    names |= {"backbone.sha256": backbone["sha256"], "options": max(description["options"], key=len, default="")}
    found = next((place for place, name in names.items() if len(name) > LONGEST_NAME), None)
    return None if found is None else f"{found} has a name of {len(names[found])} characters"


def require_no_pickles(names: Iterable[str], place: str) -> None:
    """Refuses files of a kind that can run code."""
    pickles = sorted(name for name in names if name.lower().endswith(_PICKLES))
    if pickles:
        raise ValueError(
            f"{place} is not opened: it holds {pickles[0]}, and files of that kind can run code; take it out"
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> str:
    """Writes tensors and an optional text; returns the hash of the file as intended."""
    # One entry at most: the order of several would differ from write to write, and the file's hash with it.
    metadata = {"note": note} if note else None
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    with create_file(path) as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU."""
    try:
        return load_file(path)
    except SafetensorError as error:
        said = " ".join(str(error).split())  # names in the file may hold line breaks
        raise ValueError(f"{path} is not a readable safetensors file: {said:.400}") from error


def read_note(path: Path) -> str:
    """The text that was written with the tensors."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] | None = file.metadata()
    return (metadata or {}).get("note", "")


def file_sha256(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def versions() -> dict[str, str]:
    """The versions on which the bits of a result depend."""
    return {
        "prol": prol.__version__,
        "torch": torch.__version__,
        "timm": version("timm"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        # Sums are ordered differently on another kind of processor, and the last bits with them.
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def operation(
    what: str, classes: int, name: Label | None = None, exact: bool | None = None, note: str = ""
) -> dict[str, Any]:
    """A line of `operations.jsonl` about an operation performed now, which left so many `classes`.

    A removed class is not named: a list of what was to be forgotten would remember it. A hash would not help, since
    names are few enough to be tried one by one. To prove a removal, give a note, such as the number of a request.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line: dict[str, Any] = {"time": now, "what": what, "classes": classes}
    line |= {} if name is None else {"name": name}
    line |= {} if exact is None else {"exact": exact}
    return line | ({"note": note} if note else {})


def read_operations(folder: Path) -> list[dict[str, Any]]:
    """The lines in a folder; none if it has no such file."""
    file = folder / OPERATIONS_FILE
    if not file.is_file():
        return []
    try:
        lines = [json.loads(line) for line in read_text(file).split("\n") if line]
    except UnsafeFile:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {' '.join(str(error).split())}; repair or remove it") from error
    if not all(isinstance(line, dict) and isinstance(line.get("what"), str) for line in lines):
        raise ValueError(f"{file} is damaged: a line does not say what was done; repair or remove it")
    return lines


def operations_text(lines: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def without_gone_names(lines: Sequence[Mapping[str, Any]], classes: Sequence[Label]) -> list[dict[str, Any]]:
    """The lines without names of classes removed since: earlier lines must not remember them either."""
    return [{part: value for part, value in line.items() if part != "name" or value in classes} for line in lines]
