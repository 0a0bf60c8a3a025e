"""Loading a saved learner, and its predictions for image files. Nothing in the folder is executed.

Anybody may have written the folder. Names, shapes and kinds of numbers are checked against the declared state when it
is loaded (`prol.state`). Here are the checks that only files need: that a learner is not much larger than its file, and
that what it holds is plausible.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from prol import registry
from prol.data.base import Unreadable
from prol.data.folder import FileSplit
from prol.data.prefetch import prefetched
from prol.files import current_folder
from prol.method_files import MethodFile
from prol.ranking import RankedLabel, ranked
from prol.runs.format import MODEL_FILE, NEW_MODEL_FILE, file_sha256, read_meta, read_tensors
from prol.tables import Amount, Value, get_value, holds, join, within

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.learner import Learner, SavedState

MOST_DRAWN = 100_000_000
"""Random weights of a network that a folder alone names: drawing them takes memory and time."""

MOST_TIMES, SPARE_BYTES = 4, 1 << 27
"""A learner takes at most so many times the bytes of its file, and these besides: random layers are not in the file."""
_ANY_COUNT = 10**6
"""Options that are counts may be as large whatever was saved, and those of steps larger."""
_LARGEST = 2**63 - 1


def require_size(
    kind: type[Learner], backbone: Backbone, options: Any, seed: int, tensors: Mapping[str, Tensor]
) -> None:
    """Refuses options for which a learner would be built that is much larger than the saved tensors."""
    saved = Amount.of(*tensors.values())
    for name, value in dataclasses.asdict(options).items():
        if isinstance(value, int) and value > max(_ANY_COUNT, saved.count) and not name.endswith("_steps"):
            raise ValueError(f"its option {name} is {value}, but only {saved.count} numbers were saved")
    needed = size_of(kind, backbone, options, seed)
    if needed is not None and needed > MOST_TIMES * saved.bytes + SPARE_BYTES:
        raise ValueError(f"its options ask for {needed / 1e6:,.0f} MB, but only {saved.bytes / 1e6:,.1f} MB were saved")


def size_of(kind: type[Learner], backbone: Backbone, options: Any, seed: int = 0) -> int | None:
    """Bytes of a learner that has learnt nothing yet; None where a method of another package needs values for it.

    A learner of shapes alone is built, which takes no memory.
    """
    try:
        with torch.device("meta"):
            outline = kind(shapes_of(backbone), options, seed)
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    needed = 0
    for entry in outline.stored.entries():
        # An empty table counts as one row, which a method may draw to see its shape.
        if entry.table is None:
            needed += Amount.of(*entry.read().values()).bytes
        else:
            buffer = entry.table.buffer
            needed += max(1, len(buffer)) * buffer.shape[1:].numel() * buffer.element_size()
    return needed


def shapes_of(backbone: Backbone) -> Backbone:
    """A copy of the network with shapes instead of weights."""
    if not isinstance(backbone, nn.Module):
        return backbone
    twins: dict[int, Any] = {}
    for tensor in (*backbone.parameters(), *backbone.buffers()):
        shape = torch.empty_like(tensor, device="meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        twins[id(tensor)] = nn.Parameter(shape, tensor.requires_grad) if is_parameter else shape
    return copy.deepcopy(backbone, twins)  # deepcopy takes what it finds there for copies already made


def load_checked(learner: Learner, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """`learner.load_state` for a state from a file; raises ValueError for one that no learner has written."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds NaN or infinity")
    classes, saved = len(meta["classes"]), meta["method"]
    learner.declare_prequential("prequential" in saved)
    for name, value in learner.stored.registry.values.items():
        if not value.later or holds(saved, name):
            _require_value(name, value, get_value(saved, name), classes)
    _require_rows(learner, tensors, classes)
    _require_same_shapes(learner, tensors)
    learner.load_state(tensors, meta)
    _require_grown(learner, classes)
    counts = learner.class_counts()
    if counts is not None and not bool(((counts >= 0) & counts.isfinite()).all()):
        raise ValueError("a count of images is below 0")


def _require_grown(learner: Learner, classes: int) -> None:
    """A table that takes a row for each new class must have one for each known class: a value may say when it does."""
    for entry in learner.stored.entries():
        if entry.table is not None and entry.combine and entry.grows is not None and entry.grows():
            rows = len(entry.table.rows)
            if rows != classes:
                raise ValueError(f"{entry.name} has {rows} rows for {classes} classes")


def _require_rows(learner: Learner, tensors: Mapping[str, Tensor], classes: int) -> None:
    """Rows of classes must be known; those of other tables must be in some table of the file."""
    longest = max((len(tensor) for tensor in tensors.values() if tensor.ndim), default=0)
    for entry in learner.stored.entries():
        for inner, tensor in within(entry.name, tensors).items():
            name = join(entry.name, inner)
            if name.rpartition("/")[2] != "rows" or not tensor.numel():
                continue
            most = max(classes, longest) if entry.kind == "moment" else classes
            if tensor.is_floating_point() or int(tensor.min()) < -1 or int(tensor.max()) >= most:
                raise ValueError(f"{name} holds something else than rows from 0 to {most - 1}")


def _require_same_shapes(learner: Learner, tensors: Mapping[str, Tensor]) -> None:
    """Tables that grow together must be of one length, and the two moments or scales of a tensor of one shape."""
    lengths: dict[str, tuple[str, int]] = {}
    for entry in learner.stored.entries():
        found, scope = within(entry.name, tensors), entry.name.rpartition("/")[0]
        if entry.table is not None and entry.grows is None and not entry.combine and "" in found:
            first, length = lengths.setdefault(scope, (entry.name, len(found[""])))
            if len(found[""]) != length:
                raise ValueError(f"{entry.name} has {len(found[''])} rows, but {first} has {length}")
        for inner, tensor in found.items() if entry.table is None else ():
            group, _, last = inner.rpartition("/")
            twin = found.get(f"{group}/mean" if group else "mean")
            if last in ("square", "inverse") and (twin is None or twin.shape != tensor.shape):
                raise ValueError(f"{join(entry.name, inner)} has not the shape of the mean beside it")


def _require_value(name: str, declared: Value, saved: Any, classes: int) -> None:
    """A value must be of the type that the learner's own has now; numbers must be finite, and rows those of classes."""
    own = declared.read()
    kinds: tuple[type, ...] = (bool,) if isinstance(own, bool) else (int,)
    if isinstance(own, float):
        kinds = (int, float)
    elif isinstance(own, str | list | dict):
        kinds = (type(own),)
    elif own is None:
        kinds = (int, float, type(None))
    if not isinstance(saved, kinds) or (isinstance(saved, bool) and bool not in kinds):
        raise ValueError(f"{name} is {saved!r:.40}")
    inside = saved if isinstance(saved, list) else saved.values() if isinstance(saved, dict) else [saved]
    for one in inside:
        # No call of math: a whole number may be too large for a float.
        if isinstance(one, int | float) and not -_LARGEST <= one <= _LARGEST:
            raise ValueError(f"{name} is {saved!r:.40}")
        least, most = (0, classes) if declared.is_row else (-1, _LARGEST)
        if (declared.is_row or isinstance(own, int)) and not (isinstance(one, int) and least <= one <= most):
            raise ValueError(f"{name} is {saved!r:.40}")


def load(
    folder: str | Path,
    backbone: Backbone | str | None = None,
    *,
    device: str = "auto",
    precision: str | None = None,
    method: type[Learner] | str | None = None,
) -> Learner:
    """Loads a learner in the state in which it was saved.

    Args:
        folder: what `learner.save` wrote.
        backbone: an open backbone, the name of one to open, or a copy of a built-in network's file; by default the one
            named in `meta.json`, and of the networks that come with prol the one with its hash.
        device: where to open the backbone.
        precision: of the backbone; by default as saved, but float32 for bf16 on a CPU.
        method: the learner's class, or `FILE.py:Class`, for a method that is not registered under a name.
    """
    place = current_folder(Path(folder).resolve())
    meta, model = read_checked(place)
    kind = method if isinstance(method, type) else saved_kind(meta, method, place)
    if kind.name != meta["method"]:
        raise ValueError(f"{place} was saved by method {meta['method']!r}, not by {kind.name!r}")
    if backbone is None or isinstance(backbone, str):
        backbone = open_saved_backbone(meta, place, backbone, device=device, precision=precision)
    else:
        require_same_weights(backbone, meta["backbone"], place)
    state = meta["state"] | {"classes": meta["classes"]}
    return restored(kind, backbone, meta, (read_tensors(model), state), place)


def saved_kind(meta: Mapping[str, Any], method: str | None, place: Path) -> type[Learner]:
    """The class of a saved learner. A file is executed only if the caller names it and it has not changed."""
    if "method_sha256" not in meta:
        return registry.registered_method(meta["method"]) if method is None else registry.method(method)
    saved = Path(meta["method_file"]).name
    if method is None:
        raise ValueError(
            f"{place} was saved by {saved}, a file that is executed only if you name it: in Python "
            f"prol.load({str(place)!r}, method='PATH/{saved}'), in commands --method PATH/{saved}"
        )
    file = MethodFile.named(method)
    if file is None:
        raise ValueError(f"{place} was saved by {saved}, not by the method {method!r}: give method='PATH/{saved}'")
    if file.sha256 != meta["method_sha256"]:
        raise ValueError(
            f"{place} was saved by {saved} with SHA-256 {meta['method_sha256'][:12]}, but {file.path} has "
            f"{file.sha256[:12]}: restore the file, or pass the class itself if the change does not matter"
        )
    kind: type[Learner] = file.load()
    return kind


def restored(
    kind: type[Learner], backbone: Backbone, saved: Mapping[str, Any], state: SavedState, place: Path
) -> Learner:
    """A learner with the options and the seed `saved` at `place`, in the given state."""
    options = kind.read_options(saved["options"])
    try:
        with _damage_at(place):
            require_size(kind, backbone, options, saved["seed"], state[0])
        learner = kind(backbone, options, saved["seed"])
        _require_same_preprocessing(learner, saved["preprocessing"], place)
        with _damage_at(place):
            load_checked(learner, *state)
    except (LookupError, RuntimeError, TypeError, AttributeError, MemoryError) as error:
        # A damaged state can make a method fail in any way.
        said = " ".join(str(error).split())
        raise ValueError(f"{place} does not fit method {kind.name!r} of this version: {said}") from error
    return learner


@contextmanager
def _damage_at(place: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place} is damaged: {' '.join(str(error).split())}; copy the folder again") from error


def read_checked(place: Path) -> tuple[dict[str, Any], Path]:
    """The content of `meta.json`, and the file of its tensors, whose hash must match.

    That is the model, or one that a killed `save_into` has not moved into place yet.
    """
    meta = read_meta(place)
    for file in (place / MODEL_FILE, place / NEW_MODEL_FILE):
        if file.is_file() and file_sha256(file) == meta["model_sha256"]:
            return meta, file
    raise ValueError(f"{place / MODEL_FILE} is damaged: its checksum is not the one saved; copy the folder again")


def open_saved_backbone(
    saved: Mapping[str, Any],
    place: Path,
    name: str | None = None,
    *,
    device: str = "auto",
    precision: str | None = None,
) -> Backbone:
    """Opens the backbone of a saved learner, under its saved name or another one; it must have the same hash."""
    from prol.backbones import open_backbone, pick_device, with_image_size
    from prol.backbones.opening import drawn_parameters, split_image_size

    given = name is not None
    if name is None:
        name = saved_backbone_name(saved["backbone"], place)
    elif split_image_size(name)[1] is None and (size := split_image_size(saved["backbone"]["name"])[1]) is not None:
        name = with_image_size(name, size)  # weights that have moved are used at the size they were used at
    if not given and (drawn := drawn_parameters(name)) > MOST_DRAWN:
        raise ValueError(
            f"{place} names the network {name!r} with {drawn / 1e6:,.0f} million random weights: where that is meant, "
            f"pass its name, backbone= or --backbone {name}"
        )
    if precision is None:
        # What is learnt is float32 in both; only the frozen trunk is read differently.
        on_cpu = pick_device(device).type == "cpu"
        precision = "float32" if saved["precision"] == "bf16" and on_cpu else saved["precision"]
    backbone = open_backbone(name, device=device, precision=precision)
    require_same_weights(backbone, saved["backbone"], place)
    return backbone


def saved_backbone_name(saved: Mapping[str, str], place: Path) -> str:
    """The name that opens the backbone of a saved learner or run; weights that are not here are refused.

    A file that it names is one of the machine where it was saved, which need not be this one.
    """
    from prol.backbones import with_image_size
    from prol.backbones.built_in import saved_built_in
    from prol.backbones.opening import split_image_size
    from prol.backbones.resnet import NAME as RESNET

    name, (plain, size) = saved["name"], split_image_size(saved["name"])
    architecture, _, source = name.partition("@")
    if architecture == RESNET:
        return name
    if (built_in := saved_built_in(plain, saved["sha256"], place)) is not None:
        return built_in if size is None else with_image_size(built_in, size)
    if source and source.split(":")[0] != "random" and not (Path(source).is_absolute() and Path(source).is_file()):
        raise FileNotFoundError(
            f"{place} was learnt on weights in the file {source}, which is not here: "
            "name the file's current path, backbone= or --backbone ARCH@FILE.safetensors"
        )
    return name


def require_same_weights(backbone: Backbone, saved: Mapping[str, str], place: Path) -> None:
    if backbone.sha256 != saved["sha256"]:
        raise ValueError(
            f"{place} was learnt on backbone {saved['name']!r} with weights {saved['sha256'][:12]}, but "
            f"{backbone.name!r} has weights {backbone.sha256[:12]}: open the original weights and pass backbone="
        )


def _require_same_preprocessing(learner: Learner, saved: dict[str, Any], place: Path) -> None:
    # Compared as JSON, where a tuple and a list are one.
    present = json.loads(json.dumps(dataclasses.asdict(learner.preprocessing)))
    if present != saved:
        raise ValueError(f"{place} was learnt with preprocessing {saved}, but the backbone brings {present}")


def predict_files(
    learner: Learner,
    images: Sequence[Path],
    skip: Callable[[Unreadable], None],
    *,
    top: int = 1,
    batch: int | None = None,
    workers: int = 0,
) -> Iterator[tuple[Path, list[RankedLabel]]]:
    """Each image file with its predictions, best first, in the order of the images.

    Args:
        skip: receives images that cannot be read.
        top: the maximum number of predictions per image.
        batch: images per forward pass; the learner's default when None.
        workers: threads that read ahead.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    learner.predict_batch = batch or learner.predict_batch
    files = FileSplit(tuple(images), np.zeros(len(images), dtype=np.int64))
    parts = np.array_split(np.arange(len(images)), range(learner.predict_batch, len(images), learner.predict_batch))
    for loaded in prefetched(files, parts, workers):
        if loaded.images:
            scores = learner.predict(loaded.images)
            found = ranked(scores, learner.classes, top, learner.probable(scores))
            if not all(found):
                raise ValueError("the learner has learnt nothing yet: it cannot predict")
            yield from ((images[i], best) for i, best in zip(loaded.indices, found, strict=True))
        for unreadable in loaded.unreadable:
            skip(unreadable)
