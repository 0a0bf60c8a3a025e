"""One training step of PROL as a plain PyTorch program: what the product's step is compared with.

Written from the formulas of the method, in the order in which they are told, with timm's own blocks and torch's own
Adam, and with no care for speed: two whole passes, every token of every block, attention written out where a prefix
enters it, one convolution for each block and kind, whole tables in the optimiser, the D x D correlation of L_gen. It
computes the same numbers as PROL with preset "paper" (tests/bench/test_plain_prol.py), for chunks that
hold classes of the current task only.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True).clamp(min=1e-12))


class PlainPROL(nn.Module):
    """Query network, working network, generator, keys, scalers, shifters, and one head a task.

    Args:
        vit: timm's network, without a classifier; it is copied.
        options: coefficients and sizes by the names of `prol.methods.prol.options.PROLOptions`.
        classes: of all tasks; their keys, scalers and shifters are there from the beginning.
    """

    def __init__(self, vit: nn.Module, options: Any, classes: int) -> None:
        super().__init__()
        self.options = options
        self.query = copy.deepcopy(vit).requires_grad_(False)
        self.working = copy.deepcopy(vit).requires_grad_(False)
        self.norms = [p for name, p in self.working.named_parameters() if "norm" in name and options.tune_norms]
        for parameter in self.norms:
            parameter.requires_grad_(True)
        width, self.heads_of_attention = vit.embed_dim, vit.blocks[0].attn.num_heads
        like = vit.norm.weight
        bound, kernels = 1 / math.sqrt(3), (options.blocks, 2, self.heads_of_attention)

        def parameter_of(values: Tensor) -> nn.Parameter:
            return nn.Parameter(values.to(like))

        self.generator_weight = parameter_of(torch.empty(*kernels, 3).uniform_(-bound, bound))
        self.generator_bias = parameter_of(torch.empty(kernels).uniform_(-bound, bound))
        self.keys = parameter_of(torch.empty(classes, width).uniform_(-1, 1))
        self.scaler = parameter_of(torch.ones(classes, 2, options.length))
        self.shifter = parameter_of(torch.zeros(classes, 2, options.length))
        self.heads = nn.ModuleList()
        self.first = self.seen = 0

    def begin_task(self, classes: int) -> None:
        """A new head for so many classes; earlier heads and the generator are frozen, Adam and schedule begin anew."""
        o, like = self.options, self.keys
        self.heads.requires_grad_(False)
        if len(self.heads):
            self.generator_weight.requires_grad_(False)
            self.generator_bias.requires_grad_(False)
        linear = nn.Linear(self.keys.shape[1], classes)
        nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(linear.bias)
        self.heads.append(nn.Sequential(nn.LayerNorm(self.keys.shape[1]), linear).to(like))
        self.first, self.seen = self.seen, self.seen + classes
        base = o.lr * o.chunk / 256 if o.lr_scaling else o.lr
        norms = {id(parameter) for parameter in self.norms}
        own = [p for p in self.parameters() if p.requires_grad and id(p) not in norms]
        groups = [{"params": own, "base": base}]
        if self.norms:
            groups.append({"params": self.norms, "base": base * (1.0 if len(self.heads) == 1 else o.norm_lr_factor)})
        self.adam = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=1e-8)
        self.soft, self.soft_steps = False, 0

    def step(self, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        """Learns from network inputs `[B, 3, S, S]` and class numbers `[B]`; returns the losses by name."""
        o = self.options
        values = self.losses(inputs, labels)
        if o.hsu and values["ce"].item() < o.threshold:
            self.soft = True
        for group in self.adam.param_groups:
            group["lr"] = group["base"]
            if self.soft:
                wave = (1 + math.cos(math.pi * self.soft_steps / o.t_max)) / 2
                group["lr"] = o.eta_min + (group["base"] - o.eta_min) * wave
        self.adam.zero_grad()
        values["total"].backward()
        if o.clip is not None:
            nn.utils.clip_grad_norm_([p for p in self.parameters() if p.requires_grad], o.clip)
        self.adam.step()
        with torch.no_grad():
            self.scaler.clamp_(1 - o.eps_a, 1 + o.eps_a)
            self.shifter.clamp_(-o.eps_b, o.eps_b)
        if self.soft:
            self.soft_steps += 1
        return {name: value.item() for name, value in values.items()}

    def losses(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        o = self.options
        with torch.no_grad():
            f = self.query.forward_features(inputs)[:, 0]
        cosines = unit(f) @ unit(self.keys[: self.seen]).T
        nearest = self.first + cosines[:, self.first :].argmax(1)
        s = cosines.gather(1, nearest[:, None])
        h = self.prompted(inputs, self.prompts(f, s, nearest))
        logits = torch.cat([head(h) for head in self.heads], dim=1)
        values = {
            "intra": F.cross_entropy(logits[:, self.first :], labels - self.first),
            "inter": F.cross_entropy(logits, labels),
            "sim": cosines.gather(1, labels[:, None]).mean(),
            "ort": logits.new_zeros(()),
        }
        if self.first:
            old = cosines[:, : self.first].argmax(1)
            values["ort"] = (unit(self.keys[labels]) * unit(self.keys[old])).sum(1).mean()
        width = f.shape[1]
        correlation = unit(f).T @ unit(h) / len(f)
        diagonal = correlation.diagonal()
        off_diagonal = correlation - torch.diag(diagonal)
        values["gen"] = (1 - diagonal).square().mean() + off_diagonal.square().sum() / (width * (width - 1))
        values["ce"] = o.intra * values["intra"] + o.inter * values["inter"]
        values["total"] = values["ce"] - o.sim * values["sim"] + o.ort * values["ort"] + o.gen * values["gen"]
        return values

    def prompts(self, f: Tensor, s: Tensor, chosen: Tensor) -> list[list[Tensor]]:
        """What is put before keys and values of each prompted block, `[B, H, l, d]` each."""
        r = f[:, :: self.heads_of_attention].unsqueeze(1)
        own: list[list[Tensor]] = []
        for block in range(self.options.blocks):
            own.append([])
            for kind in range(2):
                kernels, biases = self.generator_weight[block, kind], self.generator_bias[block, kind]
                u = s.unsqueeze(2) * F.conv1d(r, kernels.unsqueeze(1), biases, padding=1)
                positions = [u]
                for i in range(1, self.options.length):
                    a, b = (table[chosen, kind, i].view(-1, 1, 1) for table in (self.scaler, self.shifter))
                    positions.append(a * u + b)
                own[block].append(torch.stack(positions, dim=2))
        return [own[0]] + [[a + b for a, b in zip(own[i], own[i - 1], strict=True)] for i in range(1, len(own))]

    def prompted(self, inputs: Tensor, prompts: list[list[Tensor]]) -> Tensor:
        """The working network's class feature `[B, D]`."""
        vit = self.working
        x = vit.patch_embed(inputs)
        x = vit.norm_pre(vit._pos_embed(x))
        for number, block in enumerate(vit.blocks):
            if number < len(prompts):
                x = x + block.ls1(prefix_attention(block.attn, block.norm1(x), *prompts[number]))
                x = x + block.ls2(block.mlp(block.norm2(x)))
            else:
                x = block(x)
        feature: Tensor = vit.norm(x)[:, 0]
        return feature


def prefix_attention(attention: Any, x: Tensor, prompt_k: Tensor, prompt_v: Tensor) -> Tensor:
    """softmax(Q [P_K; K]ᵀ / √d) [P_V; V], then the output projection."""
    batch, length, width = x.shape
    qkv = attention.qkv(x).reshape(batch, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    q, k, v = qkv.unbind(0)
    k, v = torch.cat([prompt_k, k], dim=2), torch.cat([prompt_v, v], dim=2)
    weights = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
    out: Tensor = attention.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))
    return out


def make_step(backbone: Any, options: Any, earlier: int, current: int) -> Callable[[Any, Any], dict[str, float]]:
    """A step from uint8 images `[B, H, W, 3]` and class numbers, with the training transform of the method.

    Args:
        backbone: a `prol.backbones.ViT` in float32 or float64.
        options: PROL's, with preset "paper".
        earlier: classes of an earlier task, which came and went without a sample.
        current: classes of the task being learnt, numbered from `earlier` on.
    """
    from torchvision.transforms import v2

    if options.preset != "paper" or not (options.generator and options.keys and options.scalers):
        raise ValueError("the plain step is that of preset paper with all its parts: leave out preset and ablation")
    how = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
    augment = v2.Compose(
        [
            v2.RandomResizedCrop(how.size, scale=(0.05, 1.0), ratio=(3 / 4, 4 / 3), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.Normalize(how.mean, how.std),
        ]
    )
    model = PlainPROL(backbone.model, options, earlier + current).to(backbone.device)
    for classes in (earlier, current):
        if classes:
            model.begin_task(classes)

    def step(images: Any, labels: Any) -> dict[str, float]:
        pixels = torch.as_tensor(images).to(backbone.device).permute(0, 3, 1, 2).to(backbone.dtype) / 255
        inputs = torch.stack([augment(image) for image in pixels])
        return model.step(inputs, torch.as_tensor(labels).to(backbone.device))

    return step
