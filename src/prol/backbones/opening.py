"""Opening a backbone by name: built in, from the model hub or a file, with random weights, or to be trained."""

from __future__ import annotations

import hashlib
import logging
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from prol.backbones.base import Backbone
from prol.backbones.built_in import find_built_in, say_research_terms
from prol.backbones.preprocess import Preprocessing
from prol.backbones.processor import require_bf16_processor
from prol.backbones.resnet import NAME as RESNET
from prol.backbones.resnet import open_resnet
from prol.backbones.vit import ViT, require_plain

PAPER = "vit_base_patch16_224.augreg_in21k"


def open_backbone(
    name: str = "builtin", *, device: str = "auto", precision: str = "auto", shapes_only: bool = False
) -> Backbone:
    """Opens a frozen ViT, or the ResNet that some methods train.

    Args:
        name: "small" ("builtin" is the same) or "tiny", which come with prol, or the full name of such a network or a
            copy of its file; "arch.tag" as timm writes it, fetched from the model hub or its cache;
            "arch@FILE.safetensors"; or "arch@random" ("arch@random:SEED"). Image and patch size of a file are read off
            its shapes.
            "resnet18_cifar" has no weights: methods that train it draw them ("resnet18_cifar@WIDTH").
        device: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:N".
        precision: "auto" (float32 on a CPU, bf16 on a GPU), "float32", "float64" or "bf16".
        shapes_only: build it without any weights, to count parameters.
    """
    place = torch.device("meta") if shapes_only else pick_device(device)
    chosen = "float32" if shapes_only else pick_precision(precision, place)
    architecture, _, source = name.partition("@")
    if architecture == RESNET:
        return open_resnet(name, place, chosen)
    if (built_in := find_built_in(name)) is not None:
        name, preprocessing = built_in.name, built_in.preprocessing
        model, sha256 = _from_file(built_in.architecture, built_in.file, shapes_only)
        if not shapes_only:
            say_research_terms(built_in)
    elif not source:
        if shapes_only:
            model, sha256 = _create(architecture, device="meta"), ""
        else:
            name, weights = _fetch(architecture)
            model, sha256 = _from_file(architecture, weights)
        preprocessing = _preprocessing_of(model)
    elif source.split(":")[0] == "random":
        model, sha256 = _random(architecture, source, shapes_only)
        preprocessing = _preprocessing_of(model)
    else:
        model, sha256 = _from_file(architecture, Path(source), shapes_only)
        name = f"{architecture}@{Path(source).resolve()}"
        preprocessing = _preprocessing_of(model)
    if not shapes_only:
        model = cast(model, chosen).to(place)
    return ViT(model, name=name, sha256=sha256, preprocessing=preprocessing, precision=chosen)


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
            if not on_residual and name not in ("cls_token", "pos_embed"):
                parameter.data = parameter.data.to(torch.bfloat16)
    return model


def _create(architecture: str, device: str = "cpu", **sizes: Any) -> nn.Module:
    import timm

    if not architecture or not timm.is_model(architecture):
        near = get_close_matches(architecture, timm.list_models(), n=3) or [PAPER]
        raise ValueError(f"backbone {architecture!r} is not known to timm; near it: {', '.join(near)}")
    try:
        with torch.device(device):
            model: nn.Module = timm.create_model(architecture, pretrained=False, num_classes=0, **sizes)
    except (RuntimeError, TypeError) as error:  # an unknown tag; a network without these sizes
        raise ValueError(f"backbone {architecture!r} is not a plain ViT that timm can build: {error}") from None
    require_plain(model, architecture)
    return model


def _preprocessing_of(model: nn.Module) -> Preprocessing:
    import timm.data

    known = timm.data.resolve_model_data_config(model)
    size: Any = model.patch_embed.img_size[0]  # type: ignore[union-attr,index]
    return Preprocessing(
        size=int(size),
        crop_pct=float(known["crop_pct"]),
        interpolation="bilinear" if known["interpolation"] == "bilinear" else "bicubic",
        mean=tuple(known["mean"]),
        std=tuple(known["std"]),
    )


def _random(architecture: str, source: str, shapes_only: bool) -> tuple[nn.Module, str]:
    seed = source.partition(":")[2] or "0"
    if not seed.isdigit():
        raise ValueError(f"random weights take a whole number as seed, got {seed!r}: write {architecture}@random:0")
    if shapes_only:
        return _create(architecture, device="meta"), ""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(seed))
        model = _create(architecture)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return model, digest.hexdigest()


def _fetch(name: str) -> tuple[str, Path]:
    """The full `arch.tag` and its weights file, from the model hub's cache, or from the hub itself when online."""
    import timm
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging as hub_logging

    _create(name, device="meta")  # refuses names that timm does not know
    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise ValueError(f"timm has no weights for {name!r}; use {name}@FILE.safetensors or {name}@random")
    loudness = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)  # its retries would hide our one line
    try:
        weights = Path(hf_hub_download(config.hf_hub_id, "model.safetensors"))
    except Exception as error:  # the hub client has many ways to be offline
        raise FileNotFoundError(
            f"weights of {name!r} are not in the hub cache and the model hub did not respond ({type(error).__name__}); "
            f"fetch model.safetensors of {config.hf_hub_id} and use --backbone {name}@PATH/model.safetensors"
        ) from error
    finally:
        hub_logging.set_verbosity(loudness)
    return f"{config.architecture}.{config.tag}" if config.tag else name, weights


def _from_file(architecture: str, path: Path, shapes_only: bool = False) -> tuple[nn.Module, str]:
    """A model with the weights of a safetensors file; its classifier, if any, is not loaded."""
    if not path.is_file():
        raise FileNotFoundError(f"weights file {path} does not exist")
    try:
        with safe_open(path, framework="pt") as stored:
            names = [name for name in stored.keys() if not name.startswith(("head.", "head_dist."))]  # noqa: SIM118
            shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in names}
            sizes = _sizes(shapes, path)
            model = _create(architecture, device="meta", **sizes)  # weights drawn for it would be discarded
            _require_same_shapes(model, shapes, path, architecture)
            if shapes_only:
                return model, ""
            # Copies: the file may change while they are in use.
            weights: dict[str, Tensor] = {name: stored.get_tensor(name).clone() for name in names}
    except SafetensorError as error:
        raise ValueError(f"weights file {path} is not a safetensors file or is damaged: {error}") from None
    model.load_state_dict(weights, assign=True)
    return model, hashlib.sha256(path.read_bytes()).hexdigest()


def _sizes(shapes: dict[str, tuple[int, ...]], path: Path) -> dict[str, int]:
    """Image and patch size, from the shapes of a plain ViT's weights."""
    if len(shapes.get("patch_embed.proj.weight", ())) != 4 or len(shapes.get("pos_embed", ())) != 3:
        raise ValueError(f"weights file {path} holds no ViT in timm's naming (patch_embed.proj.weight, pos_embed)")
    patch = shapes["patch_embed.proj.weight"][-1]
    side = int((shapes["pos_embed"][1]) ** 0.5)  # with or without a position for the class token
    return {"img_size": side * patch, "patch_size": patch}


def _require_same_shapes(model: nn.Module, shapes: dict[str, tuple[int, ...]], path: Path, name: str) -> None:
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    if wanted == shapes:
        return
    odd = sorted(key for key in wanted.keys() | shapes.keys() if wanted.get(key) != shapes.get(key))
    raise ValueError(
        f"weights file {path} does not fit {name}: {len(odd)} tensors differ, first {odd[0]} "
        f"(file {shapes.get(odd[0], 'missing')}, network {wanted.get(odd[0], 'missing')}); name the right architecture"
    )
