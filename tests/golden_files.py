"""The golden vectors, and the tiny ViT they were made with."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from prol.backbones import Preprocessing, ViT

SHIPPED = Path(__file__).parent / "golden"
GOLDEN = Path(os.environ.get("PROL_GOLDEN", SHIPPED))


def golden(name: str) -> dict[str, Tensor]:
    """A file of vectors; one that the folder in PROL_GOLDEN lacks is taken from the shipped ones."""
    file = GOLDEN / f"{name}.safetensors"
    return load_file(file if file.exists() else SHIPPED / file.name)


def tiny_vit(dtype: torch.dtype = torch.float64) -> ViT:
    from timm.models.vision_transformer import VisionTransformer

    stored = golden("tiny_inputs")
    width, heads, depth, hidden, size, patch = stored["config"][:6].tolist()
    model = VisionTransformer(
        img_size=size,
        patch_size=patch,
        embed_dim=width,
        depth=depth,
        num_heads=heads,
        mlp_ratio=hidden / width,
        num_classes=0,
    )
    weights = {name.removeprefix("vit."): t for name, t in stored.items() if name.startswith("vit.")}
    model.load_state_dict(weights, strict=True)
    plain = Preprocessing(size=size, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    precision = "float64" if dtype == torch.float64 else "float32"
    return ViT(model.to(dtype), name="tiny", sha256="tiny", preprocessing=plain, precision=precision)
