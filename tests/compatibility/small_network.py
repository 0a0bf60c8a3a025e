"""The small ViT that learners of the fixtures were trained on, and its weights beside them."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer

from prol.backbones import Preprocessing, ViT

SIZE, PATCH, WIDTH, DEPTH, HEADS = 16, 8, 16, 4, 2


def untrained_model() -> VisionTransformer:
    return VisionTransformer(
        img_size=SIZE, patch_size=PATCH, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS, mlp_ratio=2, num_classes=0
    )


def open_small_vit(weights: Path) -> ViT:
    """In float64: rounding differs from processor to processor, and must not decide whether numbers are the same."""
    model = untrained_model()
    model.load_state_dict(load_file(weights), strict=True)
    plain = Preprocessing(size=SIZE, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    digest = sha256(weights.read_bytes()).hexdigest()
    return ViT(model.double(), name="small", sha256=digest, preprocessing=plain, precision="float64")
