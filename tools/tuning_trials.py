"""What tuning gains, and how well statistics follow the network that is tuned: trials behind PROL+'s defaults.

    python tools/ladder.py prepare --backbone small --cifar100 PATH --cub200 PATH --store DIR --device cuda --most 160
    python tools/tuning_trials.py --store DIR --out FILE --device cuda --cells "cifar100,100,20;cub200,200,20"

For each shuffled cell, seed and way of tuning ("norms:.004:400" are LayerNorms, the largest rate and the steps; "all"
is the whole network, "normsflip" adds flipped images) a line of JSON has the accuracy on held-out training images of

    frozen      the network as it was
    exact       the tuned network, all images encoded again by it: what no stream allows
    drift       statistics of features as they were, moved by the mean move of each chunk, as PROL+ does
    mean        statistics of the frozen network, moved once at the end by the mean move of recent images
    regressed   the same by moves that are regressed on the frozen network's own feature
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ladder import AT_ONCE, CHUNK, Cell, Pool, create, drawn_stream, opened, opened_pool
from torch import Tensor

from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import class_means
from prol.methods.prol_plus.features import Scale
from prol.methods.prol_plus.gaussian import Blend, Gaussian
from prol.methods.prol_plus.tuning import one_cycle

SPECS = ("norms:.002:400", "norms:.004:400", "norms:.008:400", "normsflip:.004:400", "all:.00003:400", "all:.0001:400")
HEAD_RATE, RIDGE, DECAY = 0.002, 100.0, 0.99


class Moves:
    """Sums by which the moves m of features `[B, D]` are regressed on p = (the frozen network's own feature, 1)."""

    def __init__(self, own: slice, width: int, device: torch.device) -> None:
        count = own.stop - own.start + 1
        zeros: Any = lambda *shape: torch.zeros(*shape, device=device, dtype=torch.float64)  # noqa: E731
        self.own, self.pp, self.pm, self.mm = own, zeros(count, count), zeros(count, width), zeros(width)

    def add(self, frozen: Tensor, moves: Tensor) -> None:
        p, m = F.pad(frozen[:, self.own], (0, 1), value=1.0).double(), moves.double()
        self.pp.mul_(DECAY).addmm_(p.T, p)
        self.pm.mul_(DECAY).addmm_(p.T, m)
        self.mm.mul_(DECAY).add_(m.square().sum(0))

    def applied(self, totals: Totals, regressed: bool) -> Totals:
        """Statistics of the frozen network as if each image had moved as predicted, with the residual variance."""
        penalty = RIDGE * torch.eye(len(self.pp), device=self.pp.device, dtype=torch.float64)
        penalty[-1, -1] = 0
        k = torch.linalg.solve(self.pp + penalty, self.pm)
        if not regressed:
            k = torch.zeros_like(k)
            k[-1] = self.pm[-1] / self.pp[-1, -1]
        everything, count = totals.sums.sum(0), totals.counts.sum()
        px = torch.cat([totals.gram[self.own], everything.unsqueeze(0)])
        pp = torch.cat([px[:, self.own], torch.cat([everything[self.own], count.unsqueeze(0)]).unsqueeze(1)], dim=1)
        rest = (self.mm - 2 * (k * self.pm).sum(0) + (k * (self.pp @ k)).sum(0)).clamp(min=0)
        gram = totals.gram + k.T @ px + px.T @ k + k.T @ pp @ k
        gram.diagonal().add_(rest * count / self.pp[-1, -1])
        p = torch.cat([totals.sums[:, self.own], totals.counts.unsqueeze(1)], dim=1)
        return Totals(gram, totals.sums + p @ k, totals.counts)


def moved(totals: Totals, by: Tensor) -> Totals:
    """As if `by` `[D]` had been added to the features of each sample."""
    half = totals.sums.sum(0) + totals.counts.sum() / 2 * by
    gram = totals.gram + torch.outer(half, by) + torch.outer(by, half)
    return Totals(gram, totals.sums + torch.outer(totals.counts, by), totals.counts)


def trial(cell: Cell, seed: int, spec: str, pool: Pool, backbone: Any) -> dict[str, float]:
    """Accuracies in percent by what statistics are of."""
    torch.manual_seed(seed)
    kind, rate, steps = spec.split(":")
    stream, device = drawn_stream(pool, cell, seed), backbone.device
    learner: Any = create("prol_plus:adapt_steps=0", backbone, seed)
    widths, stored = learner.widths, pool.features["blocks"]
    learn, rows = stream.learn.to(device), torch.tensor(stream.learn_labels, device=device)
    scale, classes = Scale.of(stored[learn[:CHUNK]], widths.groups), cell.classes
    network = backbone.fork("norms" if kind.startswith("norms") else "all")
    trained = list(network.trained().values())
    head = torch.nn.Linear(backbone.width, classes, device=device)
    groups = [{"params": trained, "most": float(rate)}, {"params": head.parameters(), "most": HEAD_RATE}]
    adam = torch.optim.Adam(groups)

    def embed(blocks: Tensor) -> Tensor:
        found: Tensor = learner._embed(scale.apply(blocks.float()))
        return found

    def inputs(places: Tensor) -> Tensor:
        return pool.inputs[places.cpu()].to(device, backbone.dtype)

    def read(some: Tensor) -> tuple[Tensor, Tensor]:
        feature, taps = network.tapped(some, widths.blocks)
        return feature, torch.cat([taps, feature], dim=1)

    def accuracy(totals: Totals, blocks: Tensor) -> float:
        means, own = class_means(totals.sums, totals.counts).float(), widths.own
        directions = means[:, own] / scale.inverse[own] + scale.mean[own]
        solved = Gaussian.of(totals, learner.levels, learner.options.prior_samples).head()
        blend = Blend.of(solved, means, directions, float(totals.counts.sum()))
        scores = torch.cat([blend.scores(embed(some), some[:, own].float()) for some in blocks.split(AT_ONCE)])
        return round(100 * float((scores.argmax(1).cpu() == stream.test_labels).double().mean()), 2)

    def summed(blocks: Tensor, first: int, last: int) -> Totals:
        parts = zip(blocks[first:last].split(AT_ONCE), rows[first:last].split(AT_ONCE), strict=True)
        empty = Totals.of(torch.zeros(0, widths.all, device=device), rows[:0], classes)
        return sum((Totals.of(embed(some), of, classes) for some, of in parts), empty)

    last = min(int(steps) * CHUNK, len(learn))
    moves, drift = Moves(widths.own, widths.all, device), summed(stored, 0, 0)
    for start in range(0, last, CHUNK):
        some, of = learn[start : start + CHUNK], rows[start : start + CHUNK]
        for group in adam.param_groups:
            group["lr"] = group["most"] * one_cycle(start / CHUNK / int(steps))
        images = inputs(some)
        both = torch.cat([images, images.flip(3)]) if "flip" in kind else images
        with torch.enable_grad():
            for parameter in trained:
                parameter.requires_grad_()
            feature, before = read(both)
            loss = F.cross_entropy(head(feature.float()), of.repeat(len(both) // len(of)))
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        tuned = embed(before.detach()[: len(of)])
        moves.add(embed(stored[some]), tuned - embed(stored[some]))
        drift = moved(drift + Totals.of(tuned, of, classes), (embed(read(images)[1]) - tuned).mean(0).double())
    encoded = torch.cat([read(inputs(some))[1] for some in learn.split(AT_ONCE)])
    test = torch.cat([read(inputs(some))[1] for some in stream.test.split(AT_ONCE)])
    frozen, later = summed(stored[learn], 0, last), summed(encoded, last, len(learn))
    return {
        "frozen": accuracy(summed(stored[learn], 0, len(learn)), stored[stream.test.to(device)]),
        "exact": accuracy(summed(encoded, 0, len(learn)), test),
        "drift": accuracy(drift + later, test),
        "mean": accuracy(moves.applied(frozen, regressed=False) + later, test),
        "regressed": accuracy(moves.applied(frozen, regressed=True) + later, test),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cells", required=True, help="group,classes,images;...")
    parser.add_argument("--specs", nargs="+", default=SPECS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--device", default="cpu")
    wanted = parser.parse_args()
    backbone = opened(wanted)
    pool = opened_pool(wanted.store, backbone.device, development=True)
    for text in wanted.cells.split(";"):
        group, classes, images = text.split(",")
        cell = Cell(group, int(classes), int(images), "shuffled")
        for seed in range(wanted.seeds):
            for spec in wanted.specs:
                with torch.no_grad():
                    found = trial(cell, seed, spec, pool, backbone)
                row = json.dumps(asdict(cell) | {"seed": seed, "spec": spec} | found)
                with wanted.out.open("a") as file:
                    file.write(row + "\n")
                print(row, flush=True)


if __name__ == "__main__":
    main()
