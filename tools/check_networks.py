"""Learns, predicts, saves, loads, resumes and exports on networks of timm with random weights, one record for each.

    python tools/check_networks.py --out results/networks [--only NAME ...]

A network whose record is there already is not checked again: the same command resumes an interrupted check.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import timm
import torch

import prol
from prol.backbones import Network, ViT, open_backbone
from prol.calibration import ENOUGH
from prol.integrations.onnx import export_onnx

NETWORKS = {
    "vit_tiny_patch16_224": 64,
    "mobilenetv4_conv_small": 64,
    "tf_efficientnet_lite0": 64,
    "eva02_tiny_patch14_224": 70,
    "vit_small_patch14_dinov2": 70,
    "vit_small_patch14_reg4_dinov2": 70,
    "vit_small_patch16_dinov3": 64,
    "deit3_small_patch16_224": 64,
    "resnet50": 64,
    "convnext_tiny": 64,
    "swin_tiny_patch4_window7_224": 64,
    "vit_base_patch16_clip_224": 64,
    "vit_base_patch16_siglip_224": 64,
    "beit_base_patch16_224": 64,
}
"""Each with an image size near 64 pixels that its patches divide."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ncm": {},
    "prol_plus": {"budget_mb": 64, "features": 32, "blocks": 2, "adapt_steps": 2},
    "prol": {"blocks": 2},
    **{name: {"features": 32} for name in ("ranpac", "randumb", "foal", "klda")},
}
"""Options other than the defaults."""
TOLERANCE = 1e-5
CHUNK = 2


def images(seed: int, count: int = CHUNK) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Noise around one grey level per class."""
    random, labels = np.random.default_rng(seed), [("a", "b", "c")[i % 3] for i in range(seed, seed + count)]
    level = np.array([{"a": 40, "b": 120, "c": 200}[label] for label in labels]).reshape(-1, 1, 1, 1)
    noise = random.integers(-40, 40, (count, 48, 56, 3))
    return (level + noise).clip(0, 255).astype(np.uint8), labels


def features_equal_timms(network: Network) -> float:
    """The largest difference from timm's own features, relative to their size, in both ways of reading them."""
    inputs = torch.randn(2, 3, network.preprocessing.size, network.preprocessing.size)
    with torch.no_grad():
        expected = network.model.forward_head(network.model.forward_features(inputs), pre_logits=True).flatten(1)
        found = (network.features(inputs), network.tapped(inputs, 2)[0])
    worst = max(float((feature - expected).abs().max() / expected.abs().max()) for feature in found)
    assert worst <= TOLERANCE, f"features differ from timm's by {worst}"
    return worst


def learnt(method: str, network: Network) -> prol.Learner:
    learner = prol.create(method, network, seed=1, **SETTINGS.get(method, {}))
    for seed in range(4):
        learner.learn(*images(seed))
    return learner


def life_of(method: str, network: Network, folder: Path) -> dict[str, Any]:
    """Every step of a learner's life; raises where one fails."""
    learner, (probes, _) = learnt(method, network), images(50, 5)
    scores = learner.predict(probes)
    assert scores.shape == (5, 3), scores.shape
    assert bool(scores.isfinite().all()), "scores are not finite"
    probabilities = learner.classify(probes).probabilities
    assert torch.allclose(probabilities.sum(1), torch.ones(5).double()), "probabilities do not add up to one"
    learner.save(folder / "saved")
    loaded = prol.load(folder / "saved", device="cpu")  # opens the network again, by its saved name
    assert loaded.backbone.name == network.name, loaded.backbone.name
    assert torch.equal(loaded.predict(probes), scores), "a loaded learner predicts otherwise"
    assert torch.equal(loaded.classify(probes).probabilities, probabilities), "a loaded learner is calibrated otherwise"
    for each in (learner, loaded):
        each.learn(*images(9))
    assert torch.equal(loaded.predict(probes), learner.predict(probes)), "a resumed learner learns otherwise"
    return {"accuracy on noise": round(float((scores.argmax(1) == torch.tensor([2, 0, 1, 2, 0])).float().mean()), 2)}


def exported(method: str, network: Network, folder: Path) -> dict[str, Any]:
    learner, seed = learnt(method, network), 20
    while learner.calibration.count < ENOUGH:  # before that there is no output `unknown`
        learner.learn(*images(seed := seed + 12, 12))
    parity = export_onnx(learner, folder / "model.onnx")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    probes, _ = images(60, 3)
    scores, probabilities, unknown, _ = map(torch.from_numpy, session.run(None, {"images": probes}))
    expected, classified = learner.predict(probes), learner.classify(probes)
    difference = float((scores - expected).abs().max() / expected.abs().max())
    assert difference < 1e-3, difference
    assert torch.allclose(probabilities.double(), classified.probabilities, atol=1e-2), "other probabilities"
    assert classified.unknown is not None
    assert torch.allclose(unknown, classified.unknown, atol=1e-3), "other scores of unknown classes"
    return {"relative difference": difference, "compared images": parity.images}


def refused(method: str, network: Network) -> str:
    try:
        prol.create(method, network)
    except ValueError as error:
        message = str(error)
    else:
        raise AssertionError("it was not refused")
    assert "methods that work with it: prol_plus, ncm" in message, message
    return message


def check(name: str, size: int) -> dict[str, Any]:
    network = open_backbone(f"{name}:{size}px@random", device="cpu", precision="float32")
    assert isinstance(network, Network)
    record: dict[str, Any] = {
        "backbone": network.name,
        "parameters": sum(p.numel() for p in network.model.parameters()),
        "width": network.width,
        "taps": list(network.tap_widths),
        "plain ViT": isinstance(network, ViT),
        "versions": {"timm": timm.__version__, "torch": torch.__version__},
    }
    steps: dict[str, Callable[[Path], Any]] = {"features": lambda _: features_equal_timms(network)}
    for method in ("ncm", "prol_plus"):
        steps[method] = lambda folder, method=method: life_of(method, network, folder)
        steps[f"{method} onnx"] = lambda folder, method=method: exported(method, network, folder)
    for method in ("prol", "l2p"):
        if isinstance(network, ViT):
            steps[method] = lambda folder, method=method: life_of(method, network, folder)
        else:
            steps[f"{method} refused"] = lambda _, method=method: refused(method, network)
    record["steps"] = {}
    for step, run in steps.items():
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome: dict[str, Any] = {"ok": True, "found": run(Path(folder))}
            except Exception as error:  # whatever fails belongs in the record
                outcome = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        record["steps"][step] = outcome | {"seconds": round(time.perf_counter() - started, 1)}
        print(f"{name}: {step}: {'ok' if outcome['ok'] else outcome['error']}", flush=True)
    return record


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("results/networks"))
    flags.add_argument("--only", nargs="*", default=list(NETWORKS))
    given = flags.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in given.only:
        file = given.out / f"{name}.json"
        if not file.exists():
            record = check(name, NETWORKS[name])
            file.write_text(json.dumps(record, indent=2) + "\n")
        failed += [
            f"{name}: {step}" for step, outcome in json.loads(file.read_text())["steps"].items() if not outcome["ok"]
        ]
    print(f"{len(given.only)} networks, failed: {', '.join(failed) or 'none'}")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
