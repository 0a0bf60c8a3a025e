"""PROL against 30 recorded training steps, through the learner as shipped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from golden_files import GOLDEN, golden, tiny_vit
from methods.small_streams import tensors
from prol.backbones import evaluation_input
from prol.engine.adam import part_gradients
from prol.engine.losses import clip_together
from prol.methods.prol.learner import PROL

TRAJECTORIES = sorted(path.stem for path in GOLDEN.glob("traj_*.safetensors"))
TOLERANCE = {torch.float64: {"log": 1e-9, "state": 1e-8}, torch.float32: {"log": 1e-4, "state": 1e-4}}


def test_there_are_trajectories_to_compare_with() -> None:
    assert TRAJECTORIES


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_trajectory_is_reproduced(name: str, dtype: torch.dtype) -> None:
    recorded, inputs = golden(name), golden("tiny_inputs")
    learner = make_learner(name, dtype)
    compare = Compare(recorded, dtype)
    logs: dict[str, list[float]] = {}
    accuracy = torch.zeros(3, 3)
    for task in range(3):
        begin_task(learner, inputs, task)
        images, labels = inputs[f"train.{task}.images"], inputs[f"train.{task}.labels"]
        for start in range(0, len(images), 5):
            chunk, chunk_labels = images[start : start + 5], labels[start : start + 5]
            if start == 0:
                compare_first_batch(compare, learner, chunk, chunk_labels, task)
            learner.learn(chunk, chunk_labels)
            for key, value in learner.report().items():
                logs.setdefault(key, []).append(value)
        compare_evaluation(compare, learner, inputs, task, accuracy)
        compare_state(compare, learner, task)
    for key in ("intra", "inter", "ce", "sim", "ort", "gen", "total", "lr", "lr_norm"):
        if key != "lr_norm" or learner.options.tune_norms:
            compare(f"log.{key}", torch.tensor(logs[key], dtype=torch.float64))
    torch.testing.assert_close(accuracy, recorded["acc_matrix"].float(), rtol=0, atol=1e-5)
    ignored = {"acc_matrix"} if learner.options.tune_norms else {"acc_matrix", "log.lr_norm"}
    assert compare.seen == recorded.keys() - ignored


def make_learner(name: str, dtype: torch.dtype) -> PROL:
    kind, *flags = name.removeprefix("traj_").split("_", 1)
    rest = flags[0] if flags else ""
    options = {
        "preset": {"official": "released", "fixed": "paper"}[kind],
        "tune_norms": "frozen_norm" not in rest,
        "clip": 1.0 if rest.endswith("clip") else None,
        "augment": "none",
        "input_range": "backbone",
        "crop_pct": 1.0,
        "chunk": 5,
        "lr": 0.01,
        "lr_scaling": False,
        "blocks": 3,
        "length": 5,
        "inter": 0.03,
        "threshold": 0.8,
        "t_max": 3,
        "eta_min": 0.002,
    }
    return PROL(tiny_vit(dtype), PROL.read_options(options))


def begin_task(learner: PROL, inputs: dict[str, Tensor], task: int) -> None:
    """Announces the task's four classes and puts the recorded initial values in place of the drawn ones."""
    rows = list(range(4 * task, 4 * task + 4))
    learner.boundary(rows)
    assert learner.classes == list(range(4 * task + 4))
    learner.source.keys.rows[rows] = inputs["keys"][rows].to(learner.backbone.dtype)
    learner.source.renew_lengths()
    learner.heads.weight.rows[rows] = inputs[f"head.{task}.weight"].to(learner.backbone.dtype)
    learner.heads.bias.rows[rows] = inputs[f"head.{task}.bias"].to(learner.backbone.dtype)
    if task == 0:
        learner.source.generator.weight.copy_(inputs["gen.weight"])
        learner.source.generator.bias.copy_(inputs["gen.bias"])


class Compare:
    """Compares a value with the recorded one of that name, if the file has it."""

    def __init__(self, recorded: dict[str, Tensor], dtype: torch.dtype) -> None:
        self.recorded, self.dtype = recorded, dtype
        self.seen: set[str] = set()

    def __call__(self, name: str, value: Tensor) -> None:
        if name not in self.recorded:
            return
        self.seen.add(name)
        tolerance = TOLERANCE[self.dtype]["state" if name.startswith("state") else "log"]
        torch.testing.assert_close(
            value.detach().double(),
            self.recorded[name],
            rtol=0,
            atol=tolerance,
            msg=lambda text: f"{name}: {text}",
        )


def compare_first_batch(compare: Compare, learner: PROL, chunk: Tensor, labels: Tensor, task: int) -> None:
    inputs = evaluation_input(learner.backbone.read(chunk), learner.preprocessing, torch.device("cpu"), compare.dtype)
    total, _, parts = learner.network.losses(*learner.network.query(inputs), labels)
    gradients = as_recorded(compare, learner, part_gradients(total, parts), task)
    compare(f"step0.task{task}.cls_features", learner.network.query(inputs)[1])
    compare_first_forward(compare, learner, inputs, labels, task)
    for name, part in parts.items():
        gradient = gradients[name]
        if part.rows is not None:
            whole = torch.zeros(12, *gradient.shape[1:], dtype=compare.dtype)
            taken = part.rows >= 0
            gradient = whole.index_add(0, part.rows[taken], gradient[taken])  # a row may stand there several times
        compare_named(compare, f"grad0.task{task}", name, gradient, task)


def compare_first_forward(compare: Compare, learner: PROL, inputs: Tensor, labels: Tensor, task: int) -> None:
    """The prompted feature and the logits inside a training step, where only the task's own classes are candidates."""
    tokens, _, query = learner.network.query(inputs)
    parts = learner.network.parts()
    chosen = learner.network.choose(query, labels, torch.ones(len(labels), dtype=torch.bool), parts)[0]
    feature = learner.network.prompted(tokens, query, chosen, parts, learner.clock.first_row)
    head = {name.removeprefix("head."): part for name, part in parts.items() if name.startswith("head.")}
    compare(f"step0.task{task}.pre_logits", feature)
    compare(f"step0.task{task}.logits", learner.heads.logits(feature, head))


def as_recorded(compare: Compare, learner: PROL, raw: dict[str, Tensor], task: int) -> dict[str, Tensor]:
    """With a clip, the recording may have been taken before or after it: whichever fits the head's bias."""
    bias = compare.recorded.get(f"grad0.task{task}.head.heads.{task}.1.bias")
    tolerance = TOLERANCE[compare.dtype]["log"]
    if learner.options.clip is None or bias is None:
        return raw
    before_clip = torch.allclose(bias, raw["head.bias"][: len(bias)].double(), rtol=0, atol=tolerance)
    return raw if before_clip else clip_together(raw, learner.options.clip)


def compare_named(compare: Compare, prefix: str, name: str, value: Tensor, task: int) -> None:
    """Maps the learner's names to the recorded ones; class tables are padded to all twelve classes."""
    head = {"scale": "0.weight", "shift": "0.bias", "weight": "1.weight", "bias": "1.bias"}
    if name in ("scaler", "shifter"):
        for kind, part in enumerate("kv"):
            compare(f"{prefix}.{name}_{part}", value[:, kind])
    elif name.startswith("head."):
        part = name.removeprefix("head.")
        mine = value[task] if part in ("scale", "shift") else value[4 * task : 4 * task + 4]
        compare(f"{prefix}.head.heads.{task}.{head[part]}", mine)
    else:
        compare(f"{prefix}.{name.replace('generator', 'gen').removeprefix('norm.')}", value)


def compare_evaluation(
    compare: Compare, learner: PROL, inputs: dict[str, Tensor], after: int, accuracy: Tensor
) -> None:
    logits, features = [], []
    for task in range(after + 1):
        pixels = learner.backbone.read(inputs[f"test.{task}.images"])
        answers = []
        for start in range(0, len(pixels), learner.predict_batch):
            batch = pixels[start : start + learner.predict_batch]
            with torch.no_grad():
                answers.append(learner.scores(batch, None))
                ready = evaluation_input(batch, learner.preprocessing, torch.device("cpu"), compare.dtype)
                tokens, _, query = learner.network.query(ready)
                features.append(learner.network.features(tokens, query))
        logits.append(torch.cat(answers))
        torch.testing.assert_close(learner.predict(inputs[f"test.{task}.images"]), logits[-1].float())
        correct = logits[-1].argmax(1) == inputs[f"test.{task}.labels"]
        accuracy[task, after] = 100 * correct.float().mean()
    compare(f"eval.after{after}.logits", torch.cat(logits))
    compare(f"eval.after{after}.pre_logits", torch.cat(features))


def compare_state(compare: Compare, learner: PROL, after: int) -> None:
    """Rows of classes not met yet are recorded at their initial values, since the recording allocated all at once."""
    prefix = f"state.after{after}"
    initial = {"keys": golden("tiny_inputs")["keys"], "scaler": torch.ones(12, 2, 5), "shifter": torch.zeros(12, 2, 5)}
    stored = {name.removeprefix("source/"): t for name, t in tensors(learner).items() if name.startswith("source/")}
    for name, value in stored.items():
        if name in initial:
            value = torch.cat([value, initial[name][len(value) :].to(value.dtype)])
        compare_named(compare, prefix, name, value, after)
    for task in range(after + 1):
        for name, table in learner.heads.tables().items():
            compare_named(compare, prefix, f"head.{name}", table.rows, task)
    for name, value in learner.working.trained().items():
        compare(f"{prefix}.vit.{name}", value)
