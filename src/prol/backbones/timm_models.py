"""What is taken from timm: networks by name, their image sizes and preprocessing, and weights files of any of them."""

from __future__ import annotations

import inspect
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from prol.backbones.base import Preprocessing
from prol.backbones.built_in import prols_names
from prol.backbones.resnet import NAME as RESNET

HUB = "hf-hub:"
NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")
"""Where a training script's checkpoint may hold the network, in timm's order."""
TORCH_FILES = (".pth", ".pt", ".bin")


def create(architecture: str, device: str = "cpu", seed: int = 0, **sizes: Any) -> nn.Module:
    """A network without classifier. The global random numbers neither decide its weights nor move."""
    with warnings.catch_warnings():  # in a notebook, of progress bars that timm does not show here
        warnings.filterwarnings("ignore", message="IProgress not found")
        import timm

    hub = architecture.startswith(HUB)
    if not hub and not _is_known(architecture):
        raise ValueError(f"backbone {architecture!r} is not known to timm{_near(architecture)}")
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device), _quiet_hub():
            torch.manual_seed(seed)
            model: nn.Module = timm.create_model(architecture, pretrained=False, num_classes=0, **sizes)
    except (RuntimeError, TypeError, AssertionError, KeyError) as error:  # an unknown tag; sizes it does not take
        raise ValueError(f"backbone {architecture!r} cannot be built by timm: {error}{_tags(architecture)}") from None
    except OSError as error:  # only what comes from a hub reads anything
        raise FileNotFoundError(
            f"config.json of {architecture!r} is not in the hub cache and the model hub did not respond "
            f"({type(error).__name__})"
        ) from error
    return model


def create_filled(like: nn.Module, architecture: str, **sizes: Any) -> nn.Module:
    """`like`, a network on the device "meta", ready for weights: what no weights file holds is computed."""
    computed = {name for name, _ in like.named_buffers()} - like.state_dict().keys()
    return create(architecture, **sizes) if computed else like


def _is_known(architecture: str) -> bool:
    import timm

    try:
        return bool(architecture) and bool(timm.is_model(architecture))
    except ValueError:  # a path, or a source that timm does not know
        return False


def _near(architecture: str) -> str:
    import timm

    if architecture.endswith(TORCH_FILES):
        return f"; for a file of weights, name its architecture, ARCH@{architecture}"
    word, own = re.sub("[-/ ]", "_", architecture.lower()), [*prols_names(), RESNET]
    wanted, models = word.partition(".")[0], timm.list_models() if len(word) > 3 else []
    inside = [name for name in models if wanted in name]
    inside = inside or [name for name in models if all(part in name for part in wanted.split("_"))]
    found = [name for name in own if name.startswith(f"{wanted}.")]
    found += get_close_matches(word, own, cutoff=0.8)
    found += get_close_matches(wanted, inside or models, cutoff=0 if inside else 0.7)
    near = f"near it: {', '.join(list(dict.fromkeys(found))[:3])}" if found else "timm.list_models() has all names"
    hub = f"; {HUB}{architecture} opens a repository on the hub" if architecture.count("/") == 1 else ""
    return f"; {near}{hub}"


def _tags(architecture: str) -> str:
    import timm

    name, _, tag = architecture.partition(".")
    known = [] if architecture.startswith(HUB) or not tag else timm.list_pretrained(f"{name}.*")
    tags = [full.partition(".")[2] for full in known]
    return "" if not tags or tag in tags else f"; tags of {name}: {', '.join(tags)}"


def preprocessing_of(model: Any) -> Preprocessing:
    import timm.data

    known = timm.data.resolve_model_data_config(model)
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or known["input_size"][1:]
    return Preprocessing(
        size=int(size[0]),
        crop_pct=float(known["crop_pct"]),
        interpolation="bilinear" if known["interpolation"] == "bilinear" else "bicubic",
        mean=tuple(known["mean"]),
        std=tuple(known["std"]),
    )


def resized(model: Any, architecture: str, size: int) -> nn.Module:
    """The network for images of another size: its positions are resampled, its other weights stay."""
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", (1,))[0]
    if size < 1 or size % patch:
        near = max(patch, round(size / patch) * patch)
        raise ValueError(f"image size {size} is no multiple of the patch size of {architecture}, {patch}: use {near}")
    if "img_size" not in inspect.signature(type(model).__init__).parameters:
        return model  # type: ignore[no-any-return]  # convolutions take any size
    own = getattr(model, "set_input_size", None)
    if own is not None and "window_size" not in inspect.signature(own).parameters:
        own(img_size=(size, size))
        return model  # type: ignore[no-any-return]
    # Built again: BEiT cannot be resized in place, and Swin would change the windows it was trained with.
    device = str(next(model.parameters()).device)
    other = create(architecture, device=device, img_size=size)
    if device != "meta":
        # timm takes a Swin without classifier for one of an older naming.
        classifier = {f"{part}.weight": torch.empty(0) for part in _classifier(model)}
        weights = _converted(other, model.state_dict() | classifier)
        other.load_state_dict(without_classifier(other, weights))
    return other


# Weights


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, which may follow the file; or of a torch file that holds nothing else."""
    if not path.is_file():
        raise FileNotFoundError(f"weights file {path} does not exist")
    if path.suffix not in TORCH_FILES:
        try:
            return load_file(path)
        except SafetensorError as error:
            raise ValueError(f"weights file {path} is not a safetensors file or is damaged: {error}") from None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged pickle can fail in any way; torch's message advises to open it all the same
        raise ValueError(
            f"weights file {path} is damaged, or holds more than tensors, which could run code and is not opened: "
            "save the network's state_dict() as .safetensors where you trust it"
        ) from None
    if isinstance(stored, Mapping):
        stored = next((stored[key] for key in NESTED if isinstance(stored.get(key), Mapping)), stored)
        found = {str(name).removeprefix("module."): value for name, value in stored.items()}
        if found and all(isinstance(value, Tensor) for value in found.values()):
            return found
    raise ValueError(f"weights file {path} holds no state_dict, a dictionary of tensors")


def without_classifier(model: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = tuple(f"{part}." for part in (*_classifier(model), "head_dist"))
    return {name: tensor for name, tensor in weights.items() if not name.startswith(parts)}


def _classifier(model: Any) -> tuple[str, ...]:
    named = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    return (named,) if isinstance(named, str) else tuple(named)


def sizes_in(model: Any, weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Image and patch size of weights with learned positions; `model` has the architecture at its usual size."""
    positions, kernels = weights.get("pos_embed"), weights.get("patch_embed.proj.weight")
    usual = getattr(model, "pos_embed", None)
    if positions is None or kernels is None or usual is None or positions.ndim != 3 or kernels.ndim != 4:
        return {}
    first = usual.shape[1] - model.patch_embed.num_patches  # positions of the class token and registers
    patch, side = kernels.shape[-1], isqrt(max(0, positions.shape[1] - first))
    return {"img_size": side * patch, "patch_size": patch} if side and patch else {}


def fitted(model: nn.Module, weights: dict[str, Tensor], path: Path, name: str) -> dict[str, Tensor]:
    """Weights without classifier, converted as timm converts published ones where they do not fit as they are."""
    wanted, found = _shapes(model.state_dict()), without_classifier(model, weights)
    if _shapes(found) != wanted:
        with suppress(Exception):  # timm's conversions fail in any way on a file of another network
            found = without_classifier(model, _converted(model, weights))
    shapes = _shapes(found)
    odd = sorted(key for key in wanted.keys() | shapes.keys() if wanted.get(key) != shapes.get(key))
    if odd:
        raise ValueError(
            f"weights file {path} does not fit {name}: {len(odd)} tensors differ, first {odd[0]} "
            f"(file {shapes.get(odd[0], 'missing')}, network {wanted.get(odd[0], 'missing')}); "
            "name the right architecture"
        )
    return found


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def _converted(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights converted by timm's function for this family: names, positions, tables of windows."""
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    return weights if convert is None else convert(dict(weights), model)


# From the hub


def fetch(name: str) -> tuple[str, Path]:
    """The full name and the weights file, from the model hub's cache, or from the hub itself when online."""
    import timm
    from huggingface_hub import hf_hub_download

    create(name, device="meta")  # refuses names that timm does not know
    if name.startswith(HUB):
        full, place, given = name, name.removeprefix(HUB), None
    else:
        config = timm.get_pretrained_cfg(name)
        if config is None or not config.hf_hub_id:
            raise ValueError(f"timm has no weights for {name!r}; use {name}@FILE.safetensors or {name}@random")
        full = f"{config.architecture}.{config.tag}" if config.tag else name
        place, given = config.hf_hub_id, config.hf_hub_filename
    failure: Exception | None = None
    for file in (given,) if given else ("model.safetensors", "pytorch_model.bin"):
        try:
            with _quiet_hub():
                return full, Path(hf_hub_download(place, file))
        except Exception as error:  # the hub client has many ways to be offline
            failure = failure or error
    raise FileNotFoundError(
        f"weights of {name!r} are not in the hub cache and the model hub did not respond ({type(failure).__name__}); "
        f"fetch {given or 'model.safetensors'} of {place} and use --backbone "
        f"{'ARCHITECTURE' if name.startswith(HUB) else name}@PATH/{given or 'model.safetensors'}"
    ) from failure


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """The hub client's retries would hide our one line."""
    from huggingface_hub.utils import logging as hub_logging

    loudness = hub_logging.get_verbosity()
    hub_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        hub_logging.set_verbosity(loudness)
