"""A learner's `classify` as an ONNX file, for programs without Python or torch. Needs the extra `onnx`."""

from __future__ import annotations

import dataclasses
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import prol
from prol.backbones.terms import weights_terms
from prol.calibration import ENOUGH, SPREAD_CLASSES
from prol.files import write_file
from prol.integrations import first_line
from prol.integrations.onnx_graph import INPUT, Parity, Predictions, generated_images, require_parity

if TYPE_CHECKING:
    from prol.learner import Learner

UNKNOWN_MEANS = "share of images of known classes that are more familiar; above 0.95 probably none of the classes"


def export_onnx(
    learner: Learner, file: str | Path, notes: Mapping[str, str] | None = None, unknown: bool = True
) -> Parity:
    """Writes `learner.classify` as an ONNX model of uint8 RGB images `[N, H, W, 3]`.

    It returns `scores` and `probabilities`, float32 `[N, C]`, then `unknown` and `familiarity`, float32 `[N]`. Where
    the last two are missing, the metadata and `Parity.without_unknown` say why.

    N, H and W are dynamic; resizing and cropping are part of the graph. The file contains the learner's current state
    and the backbone's weights, and cannot learn further. It is only written if onnxruntime agrees with the learner.

    Args:
        learner: on a CPU, in float32.
        file: what to write; an existing file is replaced.
        notes: further entries for the model's metadata.
        unknown: whether to export `unknown` and `familiarity`, which may make the file much larger.
    """
    _require_extra()
    path = Path(file).resolve()
    if path.is_dir():
        raise ValueError(f"cannot write {path}: it is a folder; name a file, such as {path / 'model.onnx'}")
    _require_exportable(learner)
    path.parent.mkdir(parents=True, exist_ok=True)
    measured: list[Parity] = []
    reason = _why_no_unknown(learner) if unknown else "it was not wanted"
    write_file(path, lambda unfinished: measured.append(_write_checked(learner, unfinished, notes or {}, reason)))
    return measured[0]


def _write_checked(learner: Learner, path: Path, notes: Mapping[str, str], reason: str) -> Parity:
    """Writes and checks the file, with the output `unknown` unless there is a reason against it, or one is found."""
    if not reason:
        try:
            _write(learner, path, metadata(learner) | {"unknown": UNKNOWN_MEANS} | dict(notes), unknown=True)
            return require_parity(path, learner)
        except ValueError as error:
            reason = f"with it, {error}"
    _write(learner, path, metadata(learner) | {"unknown": f"no such output: {reason}"} | dict(notes), unknown=False)
    return dataclasses.replace(require_parity(path, learner), without_unknown=reason)


def _why_no_unknown(learner: Learner) -> str:
    """Empty if `classify` returns it."""
    _, familiarity = learner.predict_with_familiarity(next(generated_images(learner.preprocessing.size)))
    if familiarity is None:
        return f"{learner.name} has no familiarity"
    if learner.calibration.unknown(familiarity) is None:
        return f"fewer than {ENOUGH:.0f} images of known classes were observed"
    return ""


def metadata(learner: Learner) -> dict[str, str]:
    """The model's `metadata_props`; values that are not plain text are JSON."""
    terms = weights_terms(learner.backbone.name)
    return {
        "prol": prol.__version__,
        "method": learner.name,
        "classes": json.dumps(learner.classes, ensure_ascii=False),
        "temperature": _temperature(learner),
        "backbone": terms.title,
        "backbone_sha256": learner.backbone.sha256,
        "backbone_terms": terms.words,
        "preprocessing": json.dumps(dataclasses.asdict(learner.preprocessing)),
    }


def _temperature(learner: Learner) -> str:
    calibration, prior = learner.calibration, learner.prior_temperature()
    found, usual = calibration.usual_temperature(prior), calibration.usual_spread(prior)
    if found is None:
        return "the standard deviation of each image's scores"
    relative = f" * (standard deviation of the C scores / {usual!r}) ** (C / (C + {SPREAD_CLASSES}))"
    return repr(found) + relative * (usual is not None)


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


def _write(learner: Learner, path: Path, notes: Mapping[str, str], unknown: bool) -> None:
    # A clone, since tracing may leave fake tensors in a learner. Lazy solves happen in `classify`, outside the graph.
    clone, images = learner.clone(), np.concatenate(list(generated_images(learner.preprocessing.size))[:2])
    clone.classify(images)
    try:
        with _quiet():
            graph = Predictions(clone, unknown)
            example = torch.from_numpy(images[:2])
            graph(example)  # inverses of constant matrices are computed outside of the trace
            dynamic = {axis: torch.export.Dim(name) for axis, name in enumerate(("count", "height", "width"))}
            with torch.no_grad():
                program = torch.export.export(graph, (example,), dynamic_shapes=(dynamic,), strict=False)
            exported: Any = torch.onnx.export(
                program, (), input_names=[INPUT], output_names=graph.names, dynamo=True, verbose=False
            )
            _save(exported.model_proto, path, notes)
    except Exception as error:  # the exporter's exceptions share no base class
        raise ValueError(f"{learner.name} cannot be exported to ONNX: {first_line(error)}") from error


def _save(model: Any, path: Path, notes: Mapping[str, str]) -> None:
    import onnx

    onnx.helper.set_model_props(model, dict(notes))
    graph = model.graph
    # The exporter has its own symbols for the dynamic dimensions.
    names = {dim.dim_param: name for dim, name in zip(graph.input[0].type.tensor_type.shape.dim, "NHW", strict=False)}
    for part in (*graph.input, *graph.output, *graph.value_info):
        for dim in part.type.tensor_type.shape.dim:
            dim.dim_param = names.get(dim.dim_param, dim.dim_param)
    for part in (graph, *graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]  # stack traces with paths of this machine
    onnx.save(model, str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides what the exporter logs, warns of and prints, such as the whole graph that it could not trace."""
    names = ("torch.onnx", "onnxscript", "onnx_ir", "torch.export", "torch.fx.experimental.symbolic_shapes")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
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
