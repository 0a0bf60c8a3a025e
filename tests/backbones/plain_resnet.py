"""The small ResNet-18 written down once more with torch's own layers: nothing of the library's is used."""

from __future__ import annotations

from torch import Tensor, nn


class PlainBlock(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return (self.body(x) + self.shortcut(x)).relu()


class PlainResNet(nn.Module):
    """Stem, 2-2-2-2 blocks, average pooling; `[B, 8 * width]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks, before = [], width
        for stage, times in enumerate((1, 2, 4, 8)):
            blocks += [
                PlainBlock(before, times * width, 2 if stage else 1),
                PlainBlock(times * width, times * width, 1),
            ]
            before = times * width
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1)

    def parts(self) -> dict[str, nn.Module]:
        """Convolutions and norms under the names that the library gives them."""
        named: dict[str, nn.Module] = {"conv": self.stem[0], "norm": self.stem[1]}
        for i, block in enumerate(self.blocks):
            assert isinstance(block, PlainBlock)
            prefix = f"stages.{i // 2}.{i % 2}"
            named |= {f"{prefix}.conv1": block.body[0], f"{prefix}.norm1": block.body[1]}
            named |= {f"{prefix}.conv2": block.body[3], f"{prefix}.norm2": block.body[4]}
            if len(block.shortcut):
                named |= {f"{prefix}.around": block.shortcut[0], f"{prefix}.norm3": block.shortcut[1]}
        return named

    def weights(self) -> dict[str, nn.Parameter]:
        return {f"{name}.{kind}": p for name, part in self.parts().items() for kind, p in part.named_parameters()}

    def running(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for name, part in self.parts().items():
            if isinstance(part, nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                found |= {f"{name}.mean": part.running_mean, f"{name}.variance": part.running_var}
        return found
