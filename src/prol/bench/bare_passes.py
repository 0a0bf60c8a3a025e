"""The passes through the network that a step of PROL cannot do without, and nothing else: what bounds its time."""

from __future__ import annotations

import torch

from prol.backbones import ViT
from prol.bench.timing import Step


def bare_passes(backbone: ViT, images: int, blocks: int, length: int, tune_norms: bool) -> Step:
    """A query pass, a prompted pass, and the way back to the prefixes and, where trained, the LayerNorms.

    No images are prepared, no keys searched, no losses computed and nothing is updated.
    """
    device, dtype = backbone.device, backbone.dtype
    random = torch.Generator().manual_seed(0)
    side = backbone.preprocessing.size
    inputs = torch.randn(images, 3, side, side, generator=random).to(device, dtype)
    direction = torch.randn(images, backbone.width, generator=random).to(device, dtype)
    shape = (images, backbone.heads, length, backbone.width // backbone.heads)
    prefixes = {
        block: tuple(torch.randn(shape, generator=random).to(device, dtype).requires_grad_() for _ in "kv")
        for block in range(blocks)
    }
    working = backbone.fork("norms" if tune_norms else "none")
    leaves = [*(part for pair in prefixes.values() for part in pair), *working.trained().values()]

    def step() -> object:
        with torch.no_grad():
            tokens = backbone.embed(inputs)
            backbone.encode(tokens)
        feature = working.encode(tokens, {block: (k, v) for block, (k, v) in prefixes.items()}).feature
        return torch.autograd.grad((feature * direction).sum(), leaves)

    return step


def captured(step: Step, device: torch.device) -> Step:
    """The same step as one CUDA graph, which a GPU replays without waiting for Python."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device):
        beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):  # a first run may not be captured: libraries set themselves up in it
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(beside)
        with torch.cuda.graph(graph, stream=beside):
            step()
    return graph.replay
