"""Tensors by name in one safetensors file, and the hash that tells whether it is still as written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> str:
    """Writes tensors, and a text to go with them; returns the hash of the file as it was meant."""
    # One entry at most: the order of several would differ from write to write, and the file's hash with it.
    metadata = {"note": note} if note else None
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


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
