"""What trackers have written, read with their own tools: by name, `[step, value]` in the order of writing."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Written = dict[str, list[tuple[int, float]]]


def tensorboard_numbers(folder: Path) -> Written:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    # Files of the same second are read in any order.
    events = {name: sorted(found.Scalars(name), key=lambda one: one.wall_time) for name in found.Tags()["scalars"]}
    return {name: [(one.step, one.value) for one in rows] for name, rows in events.items()}


def tensorboard_text(folder: Path, name: str) -> str:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    [event] = found.Tensors(f"{name}/text_summary")
    return str(event.tensor_proto.string_val[0].decode())


def mlflow_run(uri: str) -> Any:
    """The one run there, with its client."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("prol")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    return client, run


def mlflow_numbers(folder: Path) -> Written:
    client, run = mlflow_run(folder.as_uri())
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    return {name: [(one.step, one.value) for one in ones] for name, ones in history.items()}


def wandb_records(folder: Path) -> Iterator[Any]:
    """The records of all offline runs in a folder, in the order of time.

    Their file is a LevelDB log behind 7 bytes of header: blocks of 32 KiB, in which a record is a checksum, a length
    and a kind (whole, first, middle, last) before its bytes, a message that wandb's own definitions read.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"), key=os.path.getmtime):
        content, place, parts = file.read_bytes(), 7, b""
        assert content[:4] == b":W&B"
        while place + 7 <= len(content):
            room = 32768 - place % 32768
            if room < 7:
                place += room
                continue
            _, length, kind = struct.unpack_from("<IHB", content, place)
            if kind == 0:
                break
            parts += content[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):
                yield Record.FromString(parts)
                parts = b""


def _values(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def wandb_numbers(folder: Path) -> Written:
    written: Written = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            row = _values(record.history.item)
            for name, value in row.items():
                if name != "chunk" and not name.startswith("_"):
                    written.setdefault(name, []).append((row["chunk"], value))
    return written


def wandb_summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "summary":
            found |= _values(record.summary.update)
    return found


def wandb_settings(folder: Path) -> dict[str, Any]:
    runs = [record.run for record in wandb_records(folder) if record.WhichOneof("record_type") == "run"]
    return _values(runs[0].config.update) | {"run_id": runs[0].run_id, "project": runs[0].project}
