"""Files of data sets that `fuzz.py` mutates: parquet files and archives."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_inputs import Content, Kind, Violation, accepts, valid_images
from fuzz_mutations import edited, spoil, spoil_tar


class Parquet(Kind):
    """Parquet files of images, all of them read. First check: pyarrow reads the metadata."""

    NAMES = ("cat", "dog", "emu")
    documented = (ValueError,)

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        random = Random(0)
        self.image = next(data for data in valid_images(random) if len(data) < 1000)
        self.valid = [self._written(random, kind) for kind in ("none", "snappy", "gzip", "zstd") for _ in range(6)]

    def _written(self, random: Random, compression: str, spoilt: bool = False) -> bytes:
        """With labels as numbers or text, images as bytes, structures or paths, and class names or none."""
        count = random.randint(1, 9)
        images: list[Any] = [spoil(self.image, random) if spoilt else self.image for _ in range(count)]
        labels: list[Any] = [random.randrange(len(self.NAMES)) for _ in images]
        kind: Any = random.choice((pa.int64(), pa.int8(), pa.uint64(), pa.int32()))
        column = pa.array(labels, kind)
        if random.random() < 0.3:
            column = pa.array([self.NAMES[label] for label in labels])
            column = column.dictionary_encode() if random.random() < 0.5 else column
        if random.random() < 0.6:
            images = [{"bytes": image, "path": f"{number}.png"} for number, image in enumerate(images)]
            images = edited(images, random) if spoilt else images
        feature: Any = {"info": {"features": {"label": {"names": list(self.NAMES), "_type": "ClassLabel"}}}}
        stored = None
        if random.random() < 0.7:
            stored = {"huggingface": json.dumps(edited(feature, random) if spoilt else feature)}
        table = pa.table({"image": images, "label": column}, metadata=stored)
        file = io.BytesIO()
        pq.write_table(table, file, compression=compression, row_group_size=random.choice((1, 3, 10)))
        return file.getvalue()

    def draw(self, random: Random) -> Content:
        how = random.random()
        if how < 0.2:
            for _ in range(10):
                try:
                    return {"it.parquet": self._written(random, "zstd", spoilt=True)}
                except (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError):
                    continue  # pyarrow cannot write what was drawn
        valid = random.choice(self.valid)
        if how < 0.45:  # what is before the metadata
            size = int.from_bytes(valid[-8:-4], "little") + 8
            return {"it.parquet": spoil(valid[:-size], random) + valid[-size:]}
        if how < 0.8:  # the metadata alone
            size = int.from_bytes(valid[-8:-4], "little")
            end = spoil(valid[-8 - size : -8], random, 1)
            return {"it.parquet": valid[: -8 - size] + end + len(end).to_bytes(4, "little") + b"PAR1"}
        return {"it.parquet": spoil(valid, random)}

    def give(self, content: Content) -> str:
        from prol.data.parquet import read_parquet

        path = self.place / "it.parquet"
        path.write_bytes(content["it.parquet"])
        found = read_parquet([path]).images
        loaded = found.load(range(min(len(found.labels), 1000)))
        return "read" if not loaded.unreadable else "read, some images unreadable"

    def passed(self, content: Content) -> bool:
        return accepts(lambda: pq.read_metadata(io.BytesIO(content["it.parquet"])) is not None)


class Archives(Kind):
    """Archives of a published data set, unpacked and read. First check: `tarfile` takes it for an archive."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        from data.small_sets import fill_classes, write_cifar

        names = [f"class {number}" for number in range(4)]
        write_cifar(place / "official" / "cifar-100-python", names, [0, 3], [1])
        for half in ("train", "test"):
            fill_classes(place / "folders" / "data" / half, {"cat": 2, "dog": 1})
        kinds = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        self.valid = [self._packed(place / source, kind) for kind in kinds for source in ("official", "folders")]
        self.packings = ("", "", "gz", "bz2", "xz")

    @staticmethod
    def _packed(source: Path, kind: int) -> bytes:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
            for child in sorted(source.iterdir()):
                archive.add(child, arcname=child.name, filter=_without_times)
        return file.getvalue()

    def draw(self, random: Random) -> Content:
        valid = random.choice(self.valid)
        packing, how = random.choice(self.packings), random.random()
        if how < 0.3:
            return {"archive": compressed(spoil_tar(valid, random), packing)}
        if how < 0.35:
            return {"archive": compressed(spoil(valid[:512], random, 1) + valid[512:], packing)}
        if how < 0.45:
            return {"archive": compressed(valid[:512] + spoil(valid[512:], random), packing)}
        whole = compressed(valid, packing)
        if how < 0.5:
            return {"archive": whole[:600] + spoil(whole[600:], random)}
        return {"archive": spoil(whole[:512], random) + whole[512:]}

    def give(self, content: Content) -> str:
        from prol.data.cifar100 import cifar100

        path = self.place / "archive"
        path.write_bytes(content["archive"])
        found = cifar100(path)
        loaded = found.train.load(range(min(len(found.train.labels), 100)))
        return "read" if not loaded.unreadable else "read, some images unreadable"

    def passed(self, content: Content) -> bool:
        return accepts(tarfile.is_tarfile, io.BytesIO(content["archive"]))

    def clean(self) -> None:
        outside = {one.name for one in self.place.iterdir()} - {"official", "folders", "archive", "cache"}
        if outside:
            raise Violation(f"unpacked outside of the folder: {sorted(outside)}")
        shutil.rmtree(self.place / "cache", ignore_errors=True)


def _without_times(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same at every run."""
    member.mtime, member.uid, member.gid, member.uname, member.gname = 1_000_000_000, 0, 0, "", ""
    return member


def compressed(data: bytes, packing: str) -> bytes:
    if packing == "gz":
        return gzip.compress(data, mtime=0)
    return bz2.compress(data) if packing == "bz2" else lzma.compress(data) if packing == "xz" else data
