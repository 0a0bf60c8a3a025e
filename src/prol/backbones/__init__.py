"""Networks that turn images into features, those of timm and a ResNet to be trained, and their preprocessing."""

from prol.backbones.base import Augment, Backbone, InputRange, Pixels, Preprocessing, Staged
from prol.backbones.blocks import Additions, Encoded, Prefix, Transformer, require_vit
from prol.backbones.built_in import BUILT_INS, BuiltIn
from prol.backbones.network import Network
from prol.backbones.opening import PAPER, open_backbone, pick_device, with_image_size
from prol.backbones.preprocess import evaluation_input, render, stage_augmented, stage_evaluation
from prol.backbones.resnet import Norms, ResNet, require_resnet
from prol.backbones.vit import ViT, prefix_attention

__all__ = [
    "BUILT_INS",
    "PAPER",
    "Additions",
    "Augment",
    "Backbone",
    "BuiltIn",
    "Encoded",
    "InputRange",
    "Network",
    "Norms",
    "Pixels",
    "Prefix",
    "Preprocessing",
    "ResNet",
    "Staged",
    "Transformer",
    "ViT",
    "evaluation_input",
    "open_backbone",
    "pick_device",
    "prefix_attention",
    "render",
    "require_resnet",
    "require_vit",
    "stage_augmented",
    "stage_evaluation",
    "with_image_size",
]


def __dir__() -> list[str]:
    return __all__
