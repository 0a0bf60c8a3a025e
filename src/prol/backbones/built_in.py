"""The networks whose weights come with prol, found by name, by hash, or by a copy of their file."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from prol.backbones.base import Preprocessing

EDGE = "efficientnet_lite0"
"""A network whose weights another package holds."""

_FOLDER = Path(__file__).parent / "builtin"
_ENDING = ".safetensors"


@dataclass(frozen=True)
class BuiltIn:
    """A network of the package; its model card is `NAME.md` beside the weights."""

    name: str
    """The name that saved learners and runs store."""
    short: tuple[str, ...]
    """Further names that `open_backbone` takes."""
    architecture: str
    """The network of timm; image and patch size are read off the weights."""
    sha256: str
    pixels: int
    licence: str
    """Its identifier on model hubs."""
    copy: Path | None = None
    """A file to read instead of the package's own."""

    @property
    def file(self) -> Path:
        return self.copy or _FOLDER / f"{self.name}{_ENDING}"

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(size=self.pixels, crop_pct=1.0, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3)


BUILT_INS = (
    BuiltIn(
        name="vit_small_patch16_128.distilled",
        short=("small", "builtin"),
        architecture="vit_small_patch16_224",
        sha256="b296e771b9de95c184a07fbbfb3e04a62e4a9a0116768b8f28da8ca5713116b9",
        pixels=128,
        licence="apache-2.0",
    ),
    BuiltIn(
        name="vit_tiny_patch16_128.distilled",
        short=("tiny",),
        architecture="vit_tiny_patch16_224",
        sha256="857c52ada87d424cc9b2f9ce0985c23fc78386bdc1e41d493e1074173215effd",
        pixels=128,
        licence="apache-2.0",
    ),
    BuiltIn(
        name="vit_tiny_patch8_64.tiny_imagenet",  # "builtin" in version 0.1.0
        short=(),
        architecture="vit_tiny_patch16_224",
        sha256="63fb1a20a19ea6abb750c3b2665615ced06d55761033c6526293e8b081bfaed6",
        pixels=64,
        licence="other",
    ),
)


def find_built_in(name: str) -> BuiltIn | None:
    """The built-in network called `name`, or None; a file that is no copy of one is refused.

    >>> find_built_in("tiny").name, find_built_in("builtin").name, find_built_in("vit_tiny_patch16_224.augreg_in21k")
    ('vit_tiny_patch16_128.distilled', 'vit_small_patch16_128.distilled', None)
    """
    if "@" in name:
        return None
    word = name.removesuffix(_ENDING)
    known = next((one for one in BUILT_INS if word == one.name or name in one.short), None)
    if known is not None or word == name:
        return known
    file = Path(name)
    if not file.is_file():
        raise FileNotFoundError(f"weights file {file} does not exist")
    with file.open("rb") as content:
        known = built_in_of_hash(hashlib.file_digest(content, "sha256").hexdigest())
    if known is None:
        raise ValueError(f"weights file {file} is none of prol's own: name its architecture, ARCH@{file}")
    return replace(known, copy=file)


def prols_names() -> list[str]:
    """Names of networks that timm does not have, or not by these names."""
    return [*(name for one in BUILT_INS for name in (*one.short, one.name)), EDGE]


def built_in_of_hash(sha256: str) -> BuiltIn | None:
    return next((one for one in BUILT_INS if one.sha256 == sha256), None)


def saved_built_in(name: str, sha256: str, place: Path) -> str | None:
    """The name that opens the built-in network of a learner or run saved at `place`, None if it used another network.

    Only the hash decides: "builtin" has meant several networks.
    """
    known = built_in_of_hash(sha256) if "@" not in name else None
    if known is not None and known.file.is_file():
        return known.name
    if known is None and (name.endswith(_ENDING) or find_built_in(name) is None):
        return None
    raise ValueError(
        f"{place} was learnt on the built-in network {(known.name if known else name)!r} with weights {sha256}, which "
        f"this version of prol does not contain: with its file, use prol.load({str(place)!r}, backbone=FILE), or "
        "--backbone FILE on the command line"
    )


def require_file(built_in: BuiltIn) -> None:
    if not built_in.file.is_file():
        raise FileNotFoundError(
            f"this version of prol does not contain the network {built_in.name!r} with weights {built_in.sha256}: "
            "name a copy of its file, --backbone FILE"
        )


def say_research_terms(built_in: BuiltIn) -> None:
    """Prints the terms of weights that are for research only, the first time on this user account."""
    mark = Path.home() / ".cache" / "prol" / "weights-terms-shown"
    if built_in.licence != "other" or mark.exists():
        return
    logging.getLogger("prol").warning(
        f"The weights {built_in.name} were trained on Tiny-ImageNet and are for non-commercial research use; their "
        f"terms are in {_FOLDER / 'LICENSE-WEIGHTS.md'}. The code of prol is under the MIT licence."
    )
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError:
        pass  # a read-only home: the terms are printed again next time
