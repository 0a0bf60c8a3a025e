"""`prol.create`: a learner from a method's name, a backbone and options."""

from __future__ import annotations

from typing import Any

import torch

from prol import registry
from prol.backbones import Backbone, Network, ResNet, ViT, open_backbone
from prol.backbones.vit import not_plain
from prol.learner import Learner

_PRECISION_OF = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bf16"}


def create(
    method: str,
    backbone: str | Backbone | None = None,
    *,
    device: str = "auto",
    precision: str = "auto",
    dtype: torch.dtype | None = None,
    seed: int = 0,
    **options: Any,
) -> Learner:
    """Makes a learner that has learnt nothing yet.

    Args:
        method: a name that `prol methods` lists, or "FILE.py:Class", a class in a file.
        backbone: a name for `prol.backbones.open_backbone`, or an open backbone; the method's own, "small" for
            most, when None.
        device: "auto", "cpu", "cuda" or "cuda:N"; an open backbone must be there already.
        precision: "auto", "float32", "float64" or "bf16"; an open backbone must have it already.
        dtype: the same as a torch dtype; wins over `precision`.
        seed: drives initial values and augmentation.
        options: the method's own; unknown ones are refused with the list of valid ones.

    >>> import numpy as np, prol
    >>> learner = prol.create("ncm", "tiny")
    >>> images = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    >>> learner.learn(images, ["cat", "dog", "cat", "dog"])
    >>> learner.predict(images).shape, learner.classes
    (torch.Size([4, 2]), ['cat', 'dog'])
    """
    kind = registry.method(method)
    resolved = kind.read_options(options)
    if dtype is not None:
        if dtype not in _PRECISION_OF:
            raise ValueError(f"dtype {dtype} is not supported: use one of {', '.join(map(str, _PRECISION_OF))}")
        precision = _PRECISION_OF[dtype]
    if backbone is None:
        backbone = kind.default_backbone
    if isinstance(backbone, str):
        backbone = open_backbone(backbone, device=device, precision=precision)
    elif precision not in ("auto", backbone.precision):
        raise ValueError(f"the backbone is open in {backbone.precision}, but {precision} was requested: open it so")
    elif device not in ("auto", backbone.device.type, str(backbone.device)):
        raise ValueError(f"the backbone is open on {backbone.device}, but {device} was requested: open it there")
    require_blocks(kind, backbone)
    return kind(backbone, resolved, seed)


def require_blocks(kind: type[Learner], backbone: Backbone) -> None:
    """Refuses a network whose blocks a method cannot change, and names the methods that need feature vectors alone."""
    if not kind.needs_blocks or not isinstance(backbone, Network | ResNet) or isinstance(backbone, ViT):
        return
    known, _ = registry.load_all("methods")
    scratch = isinstance(backbone, ResNet)
    others = [name for name, other in known.items() if not other.needs_blocks and other.from_scratch == scratch]
    raise ValueError(
        f"method {kind.name} works inside the blocks of a plain ViT, and backbone {backbone.name!r} is none: "
        f"{'it has no weights yet' if scratch else not_plain(backbone.model)}; methods that work with it: "
        f"{', '.join(others)}"
    )
