"""Small parquet files in the Hugging Face convention, written for a test."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

PATHED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def encoded(value: int = 0, size: tuple[int, int] = (6, 4), kind: str = "PNG", mode: str = "RGB") -> bytes:
    """An image whose first colour is `value` everywhere."""
    file = io.BytesIO()
    colour: Any = (value,) + (0,) * (len(Image.new(mode, (1, 1)).getbands()) - 1)
    Image.new(mode, size, colour if len(colour) > 1 else value).save(file, kind)
    return file.getvalue()


def write(
    path: Path,
    labels: Sequence[Any],
    images: Sequence[Any] | None = None,
    *,
    names: Any = None,
    feature: Any = None,
    columns: tuple[str, str] = ("image", "label"),
    label_type: Any = None,
    rows_a_group: int = 4,
    compression: str = "zstd",
) -> Path:
    """Writes one shard; image i has the value i. Bytes make a plain column, dictionaries one of bytes and path."""
    if images is None:
        images = [{"bytes": encoded(i), "path": f"{i}.png"} for i in range(len(labels))]
    plain = any(isinstance(image, bytes) for image in images)
    image, label = columns
    table = pa.table({image: pa.array(images, pa.binary() if plain else PATHED), label: pa.array(labels, label_type)})
    if names is not None or feature is not None:
        features = {image: {"_type": "Image"}, label: feature or {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows_a_group, compression=compression)
    return path
