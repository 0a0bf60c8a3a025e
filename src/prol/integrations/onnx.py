"""A learner's answers as an ONNX file, for programs without Python or torch. Needs the extra `onnx`."""

from __future__ import annotations

import dataclasses
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import prol
from prol.backbones.terms import weights_terms
from prol.files import write_file
from prol.integrations.onnx_graph import INPUT, OUTPUT, traced
from prol.integrations.onnx_parity import Parity, generated_images, measure_parity

if TYPE_CHECKING:
    from prol.learner import Learner


def export_onnx(learner: Learner, file: str | Path, notes: Mapping[str, str] | None = None) -> Parity:
    """Writes what `learner.predict` does as an ONNX model: uint8 RGB `[N, H, W, 3]` to float32 scores `[N, C]`.

    N, H and W may be any; resizing and the crop are inside. What was learnt is in it as it is now, with the backbone's
    weights: the file cannot go on learning. Before it appears, onnxruntime is asked and must agree with the learner.

    Args:
        learner: on a CPU, in float32.
        file: what to write; a file that is there is replaced.
        notes: further texts by name for the model's metadata.
    """
    _require_extra()
    path = Path(file).resolve()
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file, such as {path / 'model.onnx'}")
    _require_exportable(learner)
    path.parent.mkdir(parents=True, exist_ok=True)
    measured: list[Parity] = []

    def fill(unfinished: Path) -> None:
        _write(learner, unfinished, metadata(learner) | dict(notes or {}))
        measured.append(require_parity(unfinished, learner))

    write_file(path, fill)
    return measured[0]


def metadata(learner: Learner) -> dict[str, str]:
    """What a model's `metadata_props` say: JSON where it is more than a text."""
    terms = weights_terms(learner.backbone.name)
    return {
        "prol": prol.__version__,
        "method": learner.name,
        "classes": json.dumps(learner.classes, ensure_ascii=False),
        "backbone": terms.title,
        "backbone_sha256": learner.backbone.sha256,
        "backbone_terms": terms.words,
        "preprocessing": json.dumps(dataclasses.asdict(learner.preprocessing)),
    }


def require_parity(file: Path, learner: Learner) -> Parity:
    """How well a file agrees with the learner; refuses one that does not."""
    try:
        parity = measure_parity(file, learner)
    except Exception as error:  # onnxruntime's own kinds, which have no common ground
        raise ValueError(f"the ONNX model of {learner.name} does not run, so it is not kept: {_line(error)}") from error
    if not parity.agrees():
        raise ValueError(f"the ONNX model of {learner.name} does not answer as it does, so it is not kept: {parity}")
    return parity


def _require_exportable(learner: Learner) -> None:
    dependent = learner.exemptions().get("batch_independence")
    if dependent is not None:
        raise ValueError(f"{learner.name} cannot be exported: {dependent}, but a model must answer one image at a time")
    backbone = learner.backbone
    if backbone.device.type != "cpu" or backbone.precision != "float32":
        raise ValueError(
            f"a learner on {backbone.device} in {backbone.precision} cannot be exported: save it, then export "
            "prol.load(folder, device='cpu', precision='float32')"
        )
    scores = learner.predict(next(generated_images(learner.preprocessing.size)))
    if not bool(scores.isfinite().any()):
        raise ValueError(f"the {learner.name} learner has learnt nothing yet: it has no answer to export")


def _write(learner: Learner, path: Path, notes: Mapping[str, str]) -> None:
    # A twin, in case a method keeps something of what it is traced with; what is solved when asked is solved first.
    twin, images = learner.clone(), np.concatenate(list(generated_images(learner.preprocessing.size))[:2])
    twin.predict(images)
    try:
        with _quietly():
            program = traced(twin, torch.from_numpy(images[:2]))
            made: Any = torch.onnx.export(
                program, (), input_names=[INPUT], output_names=[OUTPUT], dynamo=True, verbose=False
            )
            _save(made.model_proto, path, notes)
    except Exception as error:  # the exporter's own kinds, which have no common ground
        raise ValueError(f"{learner.name} cannot be exported to ONNX: {_line(error)}") from error


def _save(model: Any, path: Path, notes: Mapping[str, str]) -> None:
    import onnx

    onnx.helper.set_model_props(model, dict(notes))
    graph = model.graph
    _name_sides(graph)
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]  # where in whose folders each operation was written down
    onnx.save(model, str(path))


def _name_sides(graph: Any) -> None:
    """Calls what may be of any length N, H and W wherever it is written, in place of the exporter's own symbols."""
    sides = graph.input[0].type.tensor_type.shape.dim
    named = {side.dim_param: name for side, name in zip(sides, "NHW", strict=False)}
    for part in (*graph.input, *graph.output, *graph.value_info):
        for side in part.type.tensor_type.shape.dim:
            if side.dim_param in named:
                side.dim_param = named[side.dim_param]


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporter has much to say that is of use to its authors only."""
    talkers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [talker.level for talker in talkers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for talker in talkers:
            talker.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for talker, level in zip(talkers, levels, strict=True):
                talker.setLevel(level)


def _require_extra() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f"{error.name} is missing: pip install 'prol[onnx]'") from error


def _line(error: Exception) -> str:
    """The first line of what went wrong, which may be many."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said[:300]
