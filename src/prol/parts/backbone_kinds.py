"""Refuses backbones that a method cannot work on."""

from __future__ import annotations

from prol.backbones import Backbone, ResNet, ViT


def require_vit(method: str, backbone: Backbone, blocks: int = 0) -> ViT:
    """The backbone, if it is a ViT with at least so many blocks."""
    if not isinstance(backbone, ViT):
        raise ValueError(f"method {method} needs a ViT as backbone, got {type(backbone).__name__}")
    if blocks > backbone.depth:
        raise ValueError(f"{blocks} prompted blocks, but the backbone has {backbone.depth}: prompt fewer of them")
    return backbone


def require_resnet(method: str, backbone: Backbone) -> ResNet:
    """The backbone, if it is the network that is trained from scratch."""
    if not isinstance(backbone, ResNet):
        raise ValueError(
            f"method {method} trains a network from scratch and needs backbone resnet18_cifar, got {backbone.name}: "
            "leave the backbone out"
        )
    return backbone
