"""Tensors by name in one safetensors file, and the hash that tells whether it is still as written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> None:
    """Writes tensors, and a text to go with them."""
    # One entry at most: the order of several would differ from write to write, and the file's hash with it.
    metadata = {"note": note} if note else None
    path.write_bytes(save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}") from error


def read_note(path: Path) -> str:
    """The text that was written with the tensors."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] | None = file.metadata()
    return (metadata or {}).get("note", "")


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
