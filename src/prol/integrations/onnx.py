"""A learner's `predict` as an ONNX file, for programs without Python or torch. Needs the extra `onnx`."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

import prol
from prol.backbones.resampling import filter_weights, resample
from prol.backbones.terms import weights_terms
from prol.files import write_file
from prol.integrations.onnx_parity import INPUT, OUTPUT, Parity, first_line, generated_images, require_parity

if TYPE_CHECKING:
    from prol.backbones import Preprocessing
    from prol.learner import Learner


def export_onnx(learner: Learner, file: str | Path, notes: Mapping[str, str] | None = None) -> Parity:
    """Writes `learner.predict` as an ONNX model: uint8 RGB `[N, H, W, 3]` to float32 scores `[N, C]`.

    N, H and W are dynamic; resizing and cropping are part of the graph. The file contains the learner's current state
    and the backbone's weights, and cannot learn further. It is only written if onnxruntime agrees with the learner.

    Args:
        learner: on a CPU, in float32.
        file: what to write; an existing file is replaced.
        notes: further entries for the model's metadata.
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
    """The model's `metadata_props`; values that are not plain text are JSON."""
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


def _require_exportable(learner: Learner) -> None:
    dependent = learner.exemptions().get("batch_independence")
    if dependent is not None:
        raise ValueError(f"{learner.name} cannot be exported: {dependent}, but a model predicts one image at a time")
    backbone = learner.backbone
    if backbone.device.type != "cpu" or backbone.precision != "float32":
        raise ValueError(
            f"a learner on {backbone.device} in {backbone.precision} cannot be exported: save it, then export "
            "prol.load(folder, device='cpu', precision='float32')"
        )
    scores = learner.predict(next(generated_images(learner.preprocessing.size)))
    if not bool(scores.isfinite().any()):
        raise ValueError(f"the {learner.name} learner has learnt nothing yet: there is no prediction to export")


def _write(learner: Learner, path: Path, notes: Mapping[str, str]) -> None:
    # A clone, since tracing may leave fake tensors in a learner. Lazy solves happen in `predict`, outside the graph.
    clone, images = learner.clone(), np.concatenate(list(generated_images(learner.preprocessing.size))[:2])
    clone.predict(images)
    try:
        with _quiet():
            program = _traced(clone, torch.from_numpy(images[:2]))
            exported: Any = torch.onnx.export(
                program, (), input_names=[INPUT], output_names=[OUTPUT], dynamo=True, verbose=False
            )
            _save(exported.model_proto, path, notes)
    except Exception as error:  # the exporter's exceptions share no base class
        raise ValueError(f"{learner.name} cannot be exported to ONNX: {first_line(error)}") from error


def _save(model: Any, path: Path, notes: Mapping[str, str]) -> None:
    import onnx

    onnx.helper.set_model_props(model, dict(notes))
    graph = model.graph
    _name_dimensions(graph)
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]  # stack traces with paths of this machine
    onnx.save(model, str(path))


def _name_dimensions(graph: Any) -> None:
    """Names the dynamic dimensions N, H and W in place of the exporter's own symbols."""
    names = {dim.dim_param: name for dim, name in zip(graph.input[0].type.tensor_type.shape.dim, "NHW", strict=False)}
    for part in (*graph.input, *graph.output, *graph.value_info):
        for dim in part.type.tensor_type.shape.dim:
            dim.dim_param = names.get(dim.dim_param, dim.dim_param)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the exporter's log messages and warnings, which concern its developers only."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _require_extra() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(f"{error.name} is missing: pip install 'prol[onnx]'") from error


class _Scores(nn.Module):
    """A learner as a function of uint8 RGB images `[N, H, W, 3]` to float32 scores `[N, C]`."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, images: Tensor) -> Tensor:
        inputs = preprocess(images, self.learner.preprocessing, self.learner.backbone.dtype)
        # The only private access to a learner: `predict` reads images and splits batches, which no graph can.
        return self.learner.scores(inputs, None).float()


def _traced(learner: Learner, images: Tensor) -> torch.export.ExportedProgram:
    """The operations of `learner.predict`, with dynamic number, height and width of images."""
    dynamic = {axis: torch.export.Dim(name) for axis, name in enumerate(("count", "height", "width"))}
    with torch.no_grad():
        return torch.export.export(_Scores(learner), (images,), dynamic_shapes=(dynamic,), strict=False)


def preprocess(images: Tensor, how: Preprocessing, dtype: torch.dtype) -> Tensor:
    """What `prol.backbones.evaluation_input` returns for a batch, `[N, 3, size, size]`.

    The crop is computed by operations of the graph, since height and width are dynamic.
    """
    height, width = images.shape[1], images.shape[2]
    shorter = torch.minimum(_scalar(height), _scalar(width))
    rows, columns = (
        filter_weights(_central_crop(_scalar(side), shorter, how), side, how.size, how.interpolation, crop_first=False)
        for side in (height, width)
    )
    batch = images.permute(0, 3, 1, 2).to(dtype) / 255
    resized = resample(batch, rows.to(dtype), columns.to(dtype)).clamp(0, 1)
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (how.mean, how.std))
    return (resized - mean) / std


def _scalar(side: Any) -> Tensor:
    return torch.scalar_tensor(side, dtype=torch.float64)


def _central_crop(side: Tensor, shorter: Tensor, how: Preprocessing) -> Tensor:
    """Start and length along one side of the crop, in pixels of the original image, `[1, 2]`.

    Both are whole pixels of the resized image, rounded as in `prol.backbones.preprocess`; float64 holds them exactly.
    """
    resized = torch.floor(side * math.floor(how.size / how.crop_pct) / shorter)
    start = torch.round((resized - how.size) / 2) * side / resized
    return torch.stack([start, how.size * side / resized]).unsqueeze(0)
