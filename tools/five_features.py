"""What LDA makes of a few stored features of each old class: the -R rows of PROL's paper, after the last task.

    python tools/five_features.py cifar100 --data PATH --out results/five_features/cifar100.json

Fitted on all features of the last task and `--stored` of each older class, on the random features of RanPAC (relu) and
RanDumb (fourier). `shrinkage` is how the covariance is shrunk: `pooled` by OAS as the product does, `each class` by an
OAS of its own, averaged by frequency, or a fixed share, 1 being nearest class means. With and without priors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prol import registry
from prol.backbones import Backbone, evaluation_input, open_backbone
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.random_features import (
    fourier_features,
    gamma_by_variance,
    normal,
    own_generator,
    relu_features,
    uniform,
)
from prol.methods.closed_form.solvers import class_means, factor, lda, oas_share

AT_ONCE = 250
SHARES = (0.5, 0.9, 1.0)


def chosen(labels: Tensor, tasks: int, stored: int, seed: int) -> Tensor:
    """Places of all images of the last task, and of `stored` of each older class."""
    classes = int(labels.max()) + 1
    first_new, random = classes - classes // tasks, torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(int((labels == c).sum()), generator=random)[:stored] for c in range(first_new)]
    old = [(labels == c).nonzero().flatten()[places] for c, places in enumerate(drawn)]
    return torch.cat([*old, (labels >= first_new).nonzero().flatten()])


@torch.no_grad()
def features(backbone: Backbone, source: Any, places: Tensor) -> Tensor:
    found = []
    for some in places.split(AT_ONCE):
        pixels = backbone.read(source.load(some.numpy()).images)
        found.append(
            backbone.features(evaluation_input(pixels, backbone.preprocessing, backbone.device, backbone.dtype))
        )
    return torch.cat(found)


def embeddings(x: Tensor, size: int, seed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """By the names of their activations; features `[N, D]` to `[N, size]`."""
    random, width = own_generator(seed), x.shape[1]
    weight = normal((width, size), random, x.device, x.dtype)
    phase = uniform((size,), 0.0, 2 * math.pi, random, x.device, x.dtype)
    gamma = gamma_by_variance(x)
    return {
        "relu": lambda x: relu_features(x, weight / width**0.5),
        "fourier": lambda x: fourier_features(x, weight, phase, gamma),
    }


def each_class_shrunk(x: Tensor, rows: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """LDA whose covariance is the mean of one a class, each shrunk by an OAS of its own, by frequency; no priors."""
    totals = Totals.of(x, rows, classes)
    means = class_means(totals.sums, totals.counts)
    centred = x.double() - means[rows]
    covariance = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64)
    for c in range(classes):
        own = centred[rows == c]
        one = own.T @ own / len(own)
        share = oas_share(one, len(own))
        mean_variance = float(one.diagonal().mean())
        covariance += len(own) / len(x) * (1 - share) * one
        covariance.diagonal().add_(len(own) / len(x) * share * mean_variance)
    weight = torch.cholesky_solve(means.T, factor(covariance)).T
    return weight, -0.5 * (means * weight).sum(1)


def judged(scores: Tensor, labels: Tensor, first_new: int) -> dict[str, float]:
    right = (scores.argmax(1) == labels).double()
    parts = {"all": right, "old": right[labels < first_new], "new": right[labels >= first_new]}
    return {name: round(100 * float(part.mean()), 2) for name, part in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--stored", "--kept", type=int, default=5)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    data = registry.dataset(given.dataset)(data=given.data)
    labels, test_labels = torch.tensor(data.train.labels), torch.tensor(data.test.labels)
    backbone, places = (
        open_backbone("vit_tiny_patch8_64.tiny_imagenet", device="cpu"),
        chosen(labels, given.tasks, given.stored, given.seed),
    )
    train, test = features(backbone, data.train, places), features(backbone, data.test, torch.arange(len(test_labels)))
    rows, classes = labels[places], int(labels.max()) + 1
    counts = torch.bincount(rows, minlength=classes).double()
    priors = (counts / counts.sum()).log()
    found: list[dict[str, Any]] = []
    for name, embed in embeddings(train, given.features, given.seed).items():
        wide, wide_test = embed(train), embed(test).double()
        totals = Totals.of(wide, rows, classes)
        for how in ("pooled", "each class", *SHARES):
            if how == "each class":
                weight, bias = each_class_shrunk(wide, rows, classes)
            else:
                weight, bias = lda(totals, None if how == "pooled" else float(how))
            for with_priors in (True, False):
                scores = wide_test @ weight.T + bias + (priors if with_priors else 0)
                row = {"embedding": name, "shrinkage": how, "priors": with_priors}
                found.append(row | judged(scores, test_labels, classes - classes // given.tasks))
                print(json.dumps(found[-1]), flush=True)
    settings = {name: value for name, value in vars(given).items() if name not in ("data", "out")}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({**settings, "accuracies": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
