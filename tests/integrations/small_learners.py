"""A trained learner of every method, on a ViT of one block or two."""

from __future__ import annotations

from typing import Any

import torch

import prol
from prol import registry
from prol.backbones import Backbone, Preprocessing, ResNet, ViT
from prol.learner import Learner
from prol.testing.stream import teach

REPLAY = {"memory": 8, "replay": 4}
METHODS: dict[str, dict[str, Any]] = {
    "prol_plus": {"features": 20, "blocks": 1, "budget_mb": 7},
    "prol": {"blocks": 1},
    "ncm": {},
    "slda": {},
    "ranpac": {"features": 50},
    "randumb": {"features": 50},
    "foal": {"features": 50},
    "layup": {},
    "klda": {"features": 50, "ensemble": 2},
    "lr_rgda": {},
    "knn": {"k": 3},
    "logreg": {},
    "head_only": {},
    "finetune": {},
    "l2p": {},
    "dualprompt": {"g_blocks": 1, "e_blocks": 1},
    "coda_prompt": {"blocks": 1},
    "convprompt": {"blocks": 1},
    "flyprompt": {"blocks": 1, "length": 2, "features": 50, "ridge": 1.0, "expert_samples": 10, "lr": 0.05},
    "mos": {"rounds": 2, "bottleneck": 2},
    "ease": {"bottleneck": 2},
    "lae": {"blocks": 1},
    "er": REPLAY,
    "derpp": REPLAY,
    "er_ace": REPLAY,
    "gdumb": {"memory": 8, "epochs": 2, "batch": 4},
    "mose": REPLAY,
    "gsa": REPLAY,
    "esrm": REPLAY,
    "ocm": {**REPLAY, "rotations": 2},
    "onpro": {**REPLAY, "rotations": 2, "close_pairs": 1},
}
"""Options that suit so small a network, by the method's name."""


NEED_TWO_BLOCKS = ("prol_plus", "prol", "dualprompt", "ease", "mos")


def small_vit(depth: int = 1, dtype: torch.dtype = torch.float32) -> ViT:
    """Sees 12 x 12 pixels as 4 patches; keeps less than the whole of a resized image."""
    from timm.models.vision_transformer import VisionTransformer

    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = VisionTransformer(
            img_size=12, patch_size=6, embed_dim=8, depth=depth, num_heads=2, mlp_ratio=2, num_classes=0
        )
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    how = Preprocessing(size=12, crop_pct=0.8, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    precision = "float64" if dtype == torch.float64 else "float32"
    return ViT(model.to(dtype), name="small", sha256="small", preprocessing=how, precision=precision)


def taught(method: str, dtype: torch.dtype = torch.float32, **options: Any) -> Learner:
    """A learner after two announced tasks of a small stream."""
    network: Backbone = small_vit(2 if method in NEED_TWO_BLOCKS else 1, dtype)
    if registry.method(method).from_scratch:
        network = ResNet(4, size=16, precision=network.precision)
    return teach(prol.create(method, network, seed=1, **(METHODS[method] | options)))
