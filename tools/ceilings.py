"""What classifiers reach that see all samples at once, as often as they like, on the features of a PROL+ learner.

    python tools/ceilings.py cifar100 --data PATH --device cuda --out results/ceilings/cifar100.json

The learner is taught the first task as in a stream, which tunes its network; from then on that stands still. Then, on
all training images: ridge regression on PROL+'s own features, and logistic regression on its features of blocks and
on the last class token alone. Penalties are chosen by the accuracy on a tenth of the training images.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from prol import registry
from prol.backbones import evaluation_input, open_backbone
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import mean_square, ridge
from prol.methods.prol_plus.learner import PROLPlus

AT_ONCE, CHUNK, EPOCHS, BATCH, LR, HELD_EVERY = 500, 10, 30, 512, 1e-3, 10
RIDGE = tuple(10.0**power for power in range(-6, 2))
DECAYS = (0.0, 1e-3, 1e-2, 1e-1)


def taught_first_task(dataset: Any, device: str, tasks: int, seed: int) -> PROLPlus:
    learner = prol.create(
        "prol_plus", open_backbone("vit_tiny_patch8_64.tiny_imagenet", device=device, precision="float32"), seed=seed
    )
    assert isinstance(learner, PROLPlus)
    labels = torch.tensor(dataset.train.labels)
    first = (labels < (int(labels.max()) + 1) // tasks).nonzero().flatten()
    for places in first[torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))].split(CHUNK):
        loaded = dataset.train.load(places.numpy())
        learner.learn(loaded.images, labels[places].tolist())
    learner.tuning.end()
    return learner


@torch.no_grad()
def features(learner: PROLPlus, source: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Last class tokens `[N, D]` and features of blocks at one scale `[N, L]` of all images, and their labels."""
    tokens, blocks, device = [], [], learner.backbone.device
    assert learner.scale is not None
    for places in torch.arange(len(source.labels)).split(AT_ONCE):
        pixels = learner.backbone.read(source.load(places.numpy()).images)
        inputs = evaluation_input(pixels, learner.preprocessing, device, learner.backbone.dtype)
        token, block = learner.tuning.look(inputs)
        tokens.append(token)
        blocks.append(learner.scale.apply(block.float()))
    return torch.cat(tokens), torch.cat(blocks), torch.tensor(source.labels, device=device)


def accuracy(scores: Tensor, labels: Tensor) -> float:
    return round(100 * float((scores.argmax(1) == labels).double().mean()), 2)


def joint_ridge(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> dict[str, float]:
    classes, held = int(labels.max()) + 1, torch.arange(len(labels), device=labels.device) % HELD_EVERY == 0
    fit, rest = Totals.of(train[~held], labels[~held], classes), Totals.of(train[held], labels[held], classes)
    judged = {s: accuracy(train[held].double() @ ridge(fit, s * mean_square(fit)).T, labels[held]) for s in RIDGE}
    best, every = max(judged, key=judged.__getitem__), fit + rest
    weight = ridge(every, best * mean_square(every))
    return {"accuracy": accuracy(test.double() @ weight.T, test_labels), "penalty": best, "held_out": judged[best]}


def probe(train: Tensor, labels: Tensor, decay: float, seed: int = 0) -> torch.nn.Linear:
    """Multinomial logistic regression by AdamW, its rate falling to zero."""
    head = torch.nn.Linear(train.shape[1], int(labels.max()) + 1, device=train.device)
    torch.nn.init.zeros_(head.weight)
    random, steps = torch.Generator().manual_seed(seed), EPOCHS * -(-len(train) // BATCH)
    adam = torch.optim.AdamW(head.parameters(), lr=LR, weight_decay=decay)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(EPOCHS):
        for places in torch.randperm(len(train), generator=random).to(train.device).split(BATCH):
            adam.zero_grad()
            F.cross_entropy(head(train[places]), labels[places]).backward()
            adam.step()
            falling.step()
    return head


def linear_probe(train: Tensor, labels: Tensor, test: Tensor, test_labels: Tensor) -> dict[str, float]:
    mean, deviation = train.mean(0), train.std(0).clamp(min=1e-6)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    held = torch.arange(len(labels), device=labels.device) % HELD_EVERY == 0
    judged = {d: accuracy(probe(train[~held], labels[~held], d)(train[held]), labels[held]) for d in DECAYS}
    best = max(judged, key=judged.__getitem__)
    return {
        "accuracy": accuracy(probe(train, labels, best)(test), test_labels),
        "weight_decay": best,
        "held_out": judged[best],
        "epochs": EPOCHS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--data", required=True)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    dataset = registry.dataset(given.dataset)(data=given.data)
    learner = taught_first_task(dataset, given.device, given.tasks, given.seed)
    (tokens, blocks, labels), (test_tokens, test_blocks, test_labels) = (
        features(learner, source) for source in (dataset.train, dataset.test)
    )
    with torch.no_grad():
        wide, test_wide = learner._embed(blocks), learner._embed(test_blocks)
    found = {
        "dataset": given.dataset,
        "seed": given.seed,
        "training_images": len(labels),
        "joint_ridge_on_all_features": joint_ridge(wide, labels, test_wide, test_labels),
        "linear_probe_on_blocks": linear_probe(blocks, labels, test_blocks, test_labels),
        "linear_probe_on_last_class_token": linear_probe(tokens, labels, test_tokens, test_labels),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
