"""What a kind of input is for `fuzz.py`, and three of the six: images, saved learners and sweep files.

Half of the mutations change any bytes; the other half respect what is checked first (lengths, checksums, syntax), and
so reach what lies behind.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tomllib
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
from fuzz_mutations import edited, spoil, spoil_png
from PIL import Image, features

Content = dict[str, bytes]
"""An input: one file, or a few, by their names."""


class Violation(Exception):
    """What must not happen although nothing was raised."""


class Memory:
    """Resident memory of a process above that at the start, in megabytes."""

    def __init__(self, process: int) -> None:
        self._place = Path(f"/proc/{process}")
        self._start = self._read("VmRSS")

    def above_start(self) -> float:
        """At most, since the peak was forgotten."""
        return (self._read("VmHWM") - self._start) / 1000

    def forget_peak(self) -> None:
        (self._place / "clear_refs").write_text("5")

    def _read(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._place / "status").read_text())
        return int(found[1]) if found else 0  # none after the process has ended


class Kind(ABC):
    """Valid inputs, their mutations, and who reads them. The folder `place` is its own."""

    documented: ClassVar[tuple[type[Exception], ...]] = (ValueError, OSError)

    def __init__(self, place: Path) -> None:
        self.place = place
        self.process = os.getpid()

    @abstractmethod
    def draw(self, random: Random) -> Content:
        """An input."""

    @abstractmethod
    def give(self, content: Content) -> str:
        """Has it read; returns a class of outcomes."""

    @abstractmethod
    def passed(self, content: Content) -> bool:
        """Whether it passed the first check."""

    def clean(self) -> None:  # noqa: B027  # most kinds leave nothing
        """Removes what an input has left."""

    def close(self) -> None:  # noqa: B027
        """Ends what was started."""


def accepts(read: Any, *given: Any) -> bool:
    try:
        return bool(read(*given))
    except Exception:
        return False


class Images(Kind):
    """Encoded images, read as those of data sets are. First check: Pillow knows the format and reads the header."""

    documented = ()  # the reader lists what it cannot read

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        from prol.data.decoding import decode_plain_jpeg

        self.valid = valid_images(Random(0))
        decode_plain_jpeg(self.valid[0])  # torchvision is imported now, as in a run

    def draw(self, random: Random) -> Content:
        valid = random.choice(self.valid)
        if random.random() < 0.4 and valid.startswith(b"\x89PNG"):
            return {"image": spoil_png(valid, random)}
        if random.random() < 0.4:
            head = min(len(valid) // 2, 200)
            return {"image": valid[:head] + spoil(valid[head:], random)}
        return {"image": spoil(valid, random)}

    def give(self, content: Content) -> str:
        from prol.data.decoding import decode_all

        loaded = decode_all([0], lambda _: content["image"], lambda _: "image")
        if loaded.unreadable:
            if "\n" in loaded.unreadable[0].reason:
                raise Violation("several lines")
            return "unreadable"
        image = loaded.images[0]
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise Violation(f"read as {image.dtype} {image.shape}")
        return "read"

    def passed(self, content: Content) -> bool:
        return accepts(lambda: Image.open(io.BytesIO(content["image"])))


def valid_images(random: Random) -> list[bytes]:
    """Of all formats that Pillow writes and many modes, from 1 to 64 pixels wide; one is reduced while it is read."""
    progressive: tuple[dict[str, Any], ...] = ({}, {"progressive": True})
    lossless: tuple[dict[str, Any], ...] = ({}, {"lossless": True})
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        *(("JPEG", mode, settings) for mode in ("RGB", "L", "CMYK") for settings in progressive),
        *(("PNG", mode, {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")),
        *(("WEBP", mode, settings) for mode in ("RGB", "RGBA") for settings in lossless),
        *(("TIFF", "RGB", {"compression": name}) for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits")),
        *(("GIF", mode, {}) for mode in ("P", "L")),
        *((kind, "RGB", {}) for kind in ("BMP", "PPM", "TGA", "PCX", "SGI", "ICO", "DDS")),
    ]
    if features.check("jpg_2000"):
        kinds.append(("JPEG2000", "RGB", {}))
    found = []
    for kind, mode, settings in kinds:
        for size in ((33, 17), (64, 64), (1, 3)):
            image = Image.frombytes("RGB", size, random.randbytes(3 * size[0] * size[1])).convert(mode)
            exif = Image.Exif()
            exif[0x0112] = random.randint(1, 8)
            rotated = {"exif": exif} if kind in ("JPEG", "PNG", "WEBP", "TIFF") else {}
            file = io.BytesIO()
            image.save(file, kind, **settings, **rotated)
            found.append(file.getvalue())
    file = io.BytesIO()
    Image.new("RGB", (2100, 2060)).save(file, "JPEG")
    return [*found, file.getvalue()]


class Artifacts(Kind):
    """Saved learners, loaded, asked and taught. First check: the checksum in `meta.json` is that of the tensors."""

    METHODS = ("ncm", "slda", "ranpac", "knn", "logreg", "prol_plus", "prol", "l2p", "head_only")

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        import torch

        import prol
        from golden_files import tiny_vit
        from methods.every_method import METHODS
        from prol.testing.stream import STREAM, make_images, teach

        self.backbone = tiny_vit(torch.float32)
        self.images, self.valid = make_images(2, 0), []
        for name in self.METHODS:
            method, options = METHODS[name]
            teach(prol.create(method, self.backbone, seed=0, **options), STREAM[:3]).save(place / name)
            self.valid.append({file: (place / name / file).read_bytes() for file in ("meta.json", "model.safetensors")})
            self.give(self.valid[-1])

    def draw(self, random: Random) -> Content:
        valid = random.choice(self.valid)
        meta, model = valid["meta.json"], valid["model.safetensors"]
        how = random.random()
        if how < 0.2:
            return {"meta.json": spoil(meta, random), "model.safetensors": model}
        if how < 0.35:
            return {"meta.json": meta, "model.safetensors": spoil(model, random)}
        content = json.loads(meta)
        if how < 0.6:
            content = edited(content, random)
        elif how < 0.8:
            model = with_other_header(model, random)
        else:
            size = 8 + int.from_bytes(model[:8], "little")
            model = model[:size] + spoil(model[size:], random)
        if isinstance(content, dict) and random.random() < 0.9:
            content["model_sha256"] = hashlib.sha256(model).hexdigest()
        return {"meta.json": json.dumps(content).encode(), "model.safetensors": model}

    def give(self, content: Content) -> str:
        import prol
        from prol.learner import Learner

        folder = self.place / "given"
        folder.mkdir(exist_ok=True)
        for name, data in content.items():
            (folder / name).write_bytes(data)
        try:
            learner: Learner = prol.load(folder, self.backbone, device="cpu")
        except self.documented as error:
            if "\n" in str(error):
                raise Violation("several lines") from error
            raise
        learner.predict(self.images)
        try:
            learner.learn(self.images, ["ant", "another"])
            learner.predict(self.images)
        except self.documented:
            return "loaded, predicts, does not learn"
        return "loaded, learns"

    def passed(self, content: Content) -> bool:
        sha256 = hashlib.sha256(content["model.safetensors"]).hexdigest()
        return accepts(lambda: json.loads(content["meta.json"])["model_sha256"] == sha256)


def with_other_header(model: bytes, random: Random) -> bytes:
    """A safetensors file whose header is edited, and its length right."""
    size = int.from_bytes(model[:8], "little")
    header = json.dumps(edited(json.loads(model[8 : 8 + size]), random)).encode()
    return len(header).to_bytes(8, "little") + header + model[8 + size :]


SWEEPS: tuple[dict[str, Any], ...] = (
    {
        "methods": ["prol:blocks=2", "ncm"],
        "datasets": ["digits", "glyphs"],
        "seeds": [4, 5],
        "grid": {"lr": "paper", "prol.length": [2, 4], "chunk": 5},
        "settings": {"development": True, "limit-per-class": 3, "points": 2},
    },
    {
        "methods": ["slda", "er:memory=20"],
        "datasets": ["digits"],
        "grid": {"protocol": ["disjoint", "blurry"], "er.replay": [4, 8], "backbone": ["tiny"], "tasks": [2, 5]},
        "settings": {"precision": "float32", "device": "cpu", "threads": 1, "checkpoint-share": 0.5},
    },
    {
        "methods": ["convprompt", "prol_plus:budget_mb=5"],
        "datasets": ["glyphs"],
        "seeds": [0],
        "grid": {"convprompt.blocks": [2, 3], "class_order": ["label", "shuffled"], "boundaries": [True, False]},
        "settings": {"backbone": "tiny", "tasks": 3, "workers": 0},
    },
)


class Sweeps(Kind):
    """Sweep files, up to the list of runs. First check: it is TOML."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        for valid in SWEEPS:
            self.give({"sweep.toml": toml(valid).encode()})

    def draw(self, random: Random) -> Content:
        valid = random.choice(SWEEPS)
        if random.random() < 0.45:
            return {"sweep.toml": toml(edited(valid, random)).encode("utf-8", "surrogateescape")}
        return {"sweep.toml": spoil(toml(valid).encode(), random)}

    def give(self, content: Content) -> str:
        from prol.runs.grid import points_of, read_sweep_file
        from prol.runs.sweep import look_at

        path = self.place / "sweep.toml"
        path.write_bytes(content["sweep.toml"])
        look_at(points_of(read_sweep_file(path)), self.place / "runs")
        return "planned"

    def passed(self, content: Content) -> bool:
        return accepts(lambda: tomllib.loads(content["sweep.toml"].decode()) is not None)


def toml(value: Any) -> str:
    """Of a table; what has no TOML form is written as text that is not TOML."""
    if not isinstance(value, dict):
        return _toml(value)
    plain = [f"{_key(name)} = {_toml(one)}" for name, one in value.items() if not isinstance(one, dict)]
    for name, table in value.items():
        if isinstance(table, dict):
            plain += [f"[{_key(name)}]", *(f"{_key(inner)} = {_toml(one)}" for inner, one in table.items())]
    return "\n".join(plain) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name, re.ASCII) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(name)} = {_toml(one)}' for name, one in value.items())}}}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:#x}" if abs(value) > 10**100 and value > 0 else str(value)
    return json.dumps(value)
