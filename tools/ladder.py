r"""The ladder: accuracy from one image per class upward, of PROL+ and its rivals on the same images.

    python tools/ladder.py prepare --backbone small --cifar100 PATH --cub200 PATH --store DIR --device cuda
    python tools/ladder.py run --backbone small --store DIR --out results/ladder/small --device cuda --shard 0/8
    python tools/ladder_report.py results/ladder/small

`prepare` renders all images once and computes the features of the frozen network. `run` streams chunks of 10 images
through each learner; PROL+ tunes a network of its own, and after that is read from features computed at once. Results
are lines of JSON, one for each run; a run that has one is not repeated. `--development` learns and tests on training
images alone. Images are stored as float16, so that features differ from those of `prol run` in the last digits. On a
GPU PROL+'s network computes in bf16, as it does by default.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import prol
from prol import registry
from prol.backbones import open_backbone
from prol.backbones.base import PLAIN
from prol.learner import Learner

CHUNK, AT_ONCE, BINS, RESAMPLED = 10, 500, 15, 20
SIZES = (1, 2, 5, 10, 20, 50, 200)
SETS = ("cifar100", "cub200", "glyphs", "digits")
ENCODERS = {"pooled": "ncm", "mean_token": "foal", "tokens": "layup", "blocks": "prol_plus:adapt_steps=0"}
"""What frozen features are stored, and the learner that computes them."""
READS = {"foal": "mean_token", "layup": "tokens", "prol_plus": "blocks", "logreg:features=prol_plus": "blocks"}
"""What a method reads; others read the pooled feature."""
RIVALS = ("ncm", "slda", "ranpac", "randumb", "foal", "layup", "klda", "lr_rgda")
REFERENCES = ("knn:k=1", "knn:k=5", "logreg", "logreg:features=prol_plus")
METHODS = ("prol_plus", "prol_plus:adapt_steps=0", *RIVALS, *REFERENCES)
GRADIENT = ("prol", "l2p", "dualprompt", "coda_prompt", "convprompt", "flyprompt", "mos", "ease", "lae", "finetune")
"""Methods that train by gradients, on the images themselves: at two sizes of all classes of one set, one seed."""
ORDER_FREE = ("ncm", "slda", "randumb", "foal", "layup", "klda", *REFERENCES)
"""Methods that compute the same in any order, up to rounding: they run once for both orders."""


@dataclass(frozen=True)
class Cell:
    """Streams of the same kind: `images` of each of so many `classes`, 0 for 1 to 50 of them; order and set."""

    group: str
    classes: int
    images: int
    order: str

    @property
    def seeds(self) -> int:
        return 20 if self.classes <= 12 and self.group in ("cifar100", "cub200") else 5

    @property
    def sets(self) -> tuple[str, ...]:
        return ("cifar100", "cub200") if self.group == "mixed" else (self.group,)


def cells(most: dict[str, int], class_counts: dict[str, int]) -> Iterator[Cell]:
    """All cells, for sets of which the smallest class has so many training images."""
    for order in ("shuffled", "class order"):
        for group in SETS:
            if group not in most:
                continue
            subsets = (3, 6, 12, 37) if group in ("cifar100", "cub200") else ()
            for classes in (*subsets, class_counts[group]):
                for images in (*SIZES, 0):
                    if images <= most[group] and (images or classes > 37):
                        yield Cell(group, classes, images, order)
        if "cifar100" in most and "cub200" in most:
            for images in SIZES:
                if images <= min(most["cifar100"], most["cub200"]):
                    yield Cell("mixed", 40, images, order)


@dataclass(frozen=True)
class Pool:
    """All images: inputs `[N, 3, S, S]`, features, and where those of each class of each set are."""

    inputs: Tensor
    features: dict[str, Tensor]
    train: dict[str, list[NDArray[np.int64]]]
    test: dict[str, list[NDArray[np.int64]]]

    def most(self) -> dict[str, int]:
        return {name: min(len(places) for places in classes) for name, classes in self.train.items()}


def prepare(wanted: argparse.Namespace) -> None:
    """Renders images and computes features, into `--store`."""
    backbone = opened(wanted)
    encoders = {name: create(method, backbone, 0) for name, method in ENCODERS.items()}
    inputs: list[Tensor] = []
    features: dict[str, list[Tensor]] = {name: [] for name in encoders}
    places: dict[str, dict[str, list[list[int]]]] = {"train": {}, "test": {}}
    count = 0
    for name in wanted.groups or SETS:
        path = getattr(wanted, name, None)
        if path is None and name in ("cifar100", "cub200"):
            continue
        dataset = registry.dataset(name)(**({"data": path} if path else {}))
        for part, split in (("train", dataset.train), ("test", dataset.test)):
            first = first_of_each(split.labels, wanted.most)
            classes: list[list[int]] = [[] for _ in dataset.class_names]
            for some in np.array_split(first, max(1, -(-len(first) // AT_ONCE))):
                loaded = split.load(some)
                rendered = backbone.inputs(backbone.read(loaded.images), backbone.preprocessing).half()
                inputs.append(rendered.cpu())
                for key, learner in encoders.items():
                    features[key].append(learner.encode(rendered.to(backbone.dtype)).float().cpu())
                for label in split.labels[loaded.indices].tolist():
                    classes[label].append(count)
                    count += 1
            places[part][name] = classes
            print(f"{name} {part}: {sum(map(len, classes))} images", flush=True)
    wanted.store.mkdir(parents=True, exist_ok=True)
    torch.save(torch.cat(inputs), wanted.store / "inputs.pt")
    torch.save({name: torch.cat(parts) for name, parts in features.items()}, wanted.store / "features.pt")
    (wanted.store / "places.json").write_text(json.dumps(places))


def first_of_each(labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    return np.concatenate([np.flatnonzero(labels == label)[:most] for label in np.unique(labels)])


def opened_pool(store: Path, device: torch.device, development: bool) -> Pool:
    """The pool that was prepared; for development a fifth of the training images take the place of the test images."""
    read = json.loads((store / "places.json").read_text())
    train, test = ({name: [np.array(c) for c in classes] for name, classes in read[p].items()} for p in read)
    if development:
        drawn = np.random.default_rng(0)
        shuffled = {name: [drawn.permutation(places) for places in classes] for name, classes in train.items()}
        test = {name: [places[: max(1, len(places) // 5)] for places in classes] for name, classes in shuffled.items()}
        train = {name: [places[max(1, len(places) // 5) :] for places in classes] for name, classes in shuffled.items()}
    inputs = torch.load(store / "inputs.pt", mmap=True)  # in the host's memory, which all processes share
    features = {name: one.to(device) for name, one in torch.load(store / "features.pt", mmap=True).items()}
    return Pool(inputs, features, train, test)


@dataclass(frozen=True)
class Stream:
    """Places of images in the pool, in the order they arrive, and of the test images; labels by class."""

    learn: Tensor
    learn_labels: list[int]
    test: Tensor
    test_labels: Tensor


def takes_part(method: str, cell: Cell, seed: int) -> bool:
    if cell.order == "class order" and method in ORDER_FREE:
        return False  # computed in the other order
    few = cell.group == "cifar100" and cell.classes == 100 and cell.images in (5, 50) and cell.order == "shuffled"
    return method not in GRADIENT or (few and seed == 0)


def drawn_stream(pool: Pool, cell: Cell, seed: int) -> Stream:
    """The same classes and images for all methods; smaller sizes learn a part of what larger ones learn."""
    random = np.random.default_rng([seed, zlib.crc32(cell.group.encode()), cell.classes])
    share = cell.classes // len(cell.sets)
    chosen = [(name, c) for name in cell.sets for c in random.permutation(len(pool.train[name]))[:share].tolist()]
    chosen = [chosen[place] for place in random.permutation(len(chosen))]
    images, test = [], []
    for name, c in chosen:
        pictures = random.permutation(pool.train[name][c])
        size = cell.images or int(np.exp(random.uniform(0, np.log(51))))
        images.append(pictures[:size])
        test.append(pool.test[name][c])
    learn = np.concatenate(images)
    labels = np.concatenate([[label] * len(places) for label, places in enumerate(images)])
    if cell.order == "shuffled":
        mixed = random.permutation(len(learn))
        learn, labels = learn[mixed], labels[mixed]
    test_labels = [label for label, places in enumerate(test) for _ in places]
    return Stream(torch.tensor(learn), labels.tolist(), torch.tensor(np.concatenate(test)), torch.tensor(test_labels))


def streamed(method: str, backbone: Any, pool: Pool, stream: Stream, seed: int) -> Learner:
    """The learner after the stream. Images are given by their places in the pool."""
    learner = create(method, backbone, seed)
    if method in GRADIENT:
        vars(backbone).pop("read", None)
        for start in range(0, len(stream.learn), CHUNK):
            learner.learn(
                pictures(pool, stream.learn[start : start + CHUNK]), stream.learn_labels[start : start + CHUNK]
            )
        return learner
    tuned = is_tuned(method)
    device = backbone.device
    learner.backbone.read = torch.as_tensor
    places_of: Any = lambda places: places.to(device)  # noqa: E731
    if tuned:
        inputs: Any = lambda places: pool.inputs[places].to(device, backbone.dtype)  # noqa: E731
        learner.evaluation_input = inputs  # type: ignore[method-assign]
    else:
        stored = pool.features[READS.get(method.partition(":adapt")[0], "pooled")]
        width = stored.shape[1] - backbone.width * (method == "logreg:features=prol_plus")  # it reads blocks alone
        learner.evaluation_input = learner.training_input = places_of  # type: ignore[method-assign]
        learner.look = lambda places: stored[places, :width]
    if not method.startswith("prol_plus"):
        learner.calibration.next = 10**12  # probabilities of rivals are not measured, and cost a solve each
    moving = tuned
    for start in range(0, len(stream.learn), CHUNK):
        if moving and learner.tuning.over:  # type: ignore[attr-defined]
            read_at_once(learner, torch.cat([stream.learn[start:], stream.test]), len(pool.inputs))
            moving = False
        learner.learn(stream.learn[start : start + CHUNK], stream.learn_labels[start : start + CHUNK])
    return learner


def pictures(pool: Pool, places: Tensor) -> NDArray[np.uint8]:
    """The rendered images again as bytes `[B, S, S, 3]`; the built-in networks take values from -1 to 1."""
    return ((pool.inputs[places].float() + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()


@torch.no_grad()
def read_at_once(learner: Learner, places: Tensor, images: int) -> None:
    """The network stands still: features of these images are computed now, and looked up from here on."""
    parts = [learner.encode(learner.evaluation_input(some)) for some in places.split(AT_ONCE)]  # type: ignore[arg-type]
    table = torch.cat(parts)
    row = torch.zeros(images, dtype=torch.long, device=table.device)
    row[places.to(table.device)] = torch.arange(len(places), device=table.device)
    learner.evaluation_input = lambda some: some.to(table.device)  # type: ignore[method-assign]
    learner.look = lambda some: table[row[some]]


def is_tuned(method: str) -> bool:
    """Whether a method moves the network, so that no stored features are its own."""
    return method.startswith("prol_plus") and "adapt_steps=0" not in method


def create(method: str, backbone: Any, seed: int) -> Learner:
    name, _, options = method.partition(":")
    return prol.create(name, backbone, seed=seed, **dict(pair.split("=") for pair in options.split(",") if pair))


def opened(wanted: argparse.Namespace, precision: str = "float32") -> Any:
    backbone = open_backbone(wanted.backbone, device=wanted.device, precision=precision)
    backbone.acceleration = PLAIN  # many short runs: compiling would take longer than they do
    return backbone


def measured(learner: Learner, stream: Stream, pool: Pool) -> dict[str, float]:
    """Accuracy, and of PROL+ how far its probabilities are from it."""
    scores = learner.predict(pictures(pool, stream.test) if learner.name in GRADIENT else stream.test)
    names = torch.tensor(learner.classes)
    right = names[scores.argmax(1)] == stream.test_labels
    found = {"accuracy": 100 * float(right.double().mean()), "test": len(right)}
    if learner.name == "prol_plus":
        likely = learner.probable(scores)
        confidence = likely.amax(1)
        random = torch.Generator().manual_seed(0)
        simulated = [torch.rand(len(right), generator=random) < confidence for _ in range(RESAMPLED)]
        found |= {
            "confidence": 100 * float(confidence.mean()),
            "ece": calibration_error(confidence, right),
            "ece_expected": float(np.mean([calibration_error(confidence, one) for one in simulated])),
        }
    return {key: round(value, 3) for key, value in found.items()}


def calibration_error(confidence: Tensor, right: Tensor) -> float:
    """Gap between confidence and accuracy in percent, over bins of equal mass."""
    order = confidence.argsort()
    gaps = [
        len(bin_) * abs(float(confidence[bin_].mean()) - float(right[bin_].double().mean()))
        for bin_ in order.tensor_split(BINS)
        if len(bin_)
    ]
    return 100 * sum(gaps) / len(confidence)


def finished(out: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Results by cell, seed and method; the last line of a killed process may be cut off."""
    found = {}
    for file in sorted(out.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            try:
                one = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[(one["group"], one["classes"], one["images"], one["order"], one["seed"], one["method"])] = one
    return found


def run(wanted: argparse.Namespace) -> None:
    backbone, tuned = opened(wanted), opened(wanted, "auto")
    pool = opened_pool(wanted.store, backbone.device, wanted.development)
    part, parts = map(int, wanted.shard.split("/"))
    counts = {name: len(classes) for name, classes in pool.train.items()}
    todo = [(c, seed) for c in cells(pool.most(), counts) for seed in range(min(c.seeds, wanted.seeds))]
    todo = [(c, s) for c, s in todo if c.order in wanted.orders and (not wanted.groups or c.group in wanted.groups)]
    todo = sorted(todo, key=lambda one: (one[1], zlib.crc32(repr(one).encode())))[part::parts]
    done = finished(wanted.out)
    wanted.out.mkdir(parents=True, exist_ok=True)
    with (wanted.out / f"shard-{part}.jsonl").open("a") as file:
        for number, (cell, seed) in enumerate(todo):
            stream = drawn_stream(pool, cell, seed)
            for method in wanted.methods:
                if not takes_part(method, cell, seed) or (*asdict(cell).values(), seed, method) in done:
                    continue
                began = time.perf_counter()
                learner = streamed(method, tuned if is_tuned(method) else backbone, pool, stream, seed)
                row = asdict(cell) | {"seed": seed, "method": method} | measured(learner, stream, pool)
                file.write(json.dumps(row | {"seconds": round(time.perf_counter() - began, 2)}) + "\n")
                file.flush()
                del learner
            if number % 20 == 0:
                print(f"{part}/{parts}: {number + 1} of {len(todo)} streams", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "run"))
    parser.add_argument("--backbone", default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, required=True, help="folder for images and features")
    parser.add_argument("--cifar100", help="where CIFAR-100 is; without it, it takes no part")
    parser.add_argument("--cub200", help="where CUB-200 is")
    parser.add_argument("--most", type=int, default=300, help="images of a class that take part")
    parser.add_argument("--out", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="METHOD:OPTION")
    parser.add_argument("--groups", nargs="*", default=(), help="sets to prepare or to run; by default all")
    parser.add_argument("--orders", nargs="+", default=("shuffled", "class order"))
    parser.add_argument("--seeds", type=int, default=20, help="at most so many seeds")
    parser.add_argument("--shard", default="0/1", help="this process, and of how many")
    parser.add_argument("--development", action="store_true", help="learn and test on training images")
    wanted = parser.parse_args()
    (prepare if wanted.step == "prepare" else run)(wanted)


if __name__ == "__main__":
    main()
