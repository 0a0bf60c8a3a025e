"""Contents of the files of finished runs, as a comparison reads them, without any run."""

from __future__ import annotations

from typing import Any

from prol.runfiles import RunFiles


def finished_run(
    folder: str,
    seed: int = 0,
    history: tuple[float, ...] = (90.0, 70.0),
    *,
    method: str = "ncm",
    options: dict[str, Any] | None = None,
    chunk: int = 10,
    announce: bool = True,
    a_auc: float | None = None,
    speed: float = 100.0,
    stored: dict[str, tuple[int, int]] | None = None,
    side_by_side: bool = False,
) -> RunFiles:
    """A run whose average accuracy after each task is `history`; `stored` holds counts and bytes by kind."""
    kinds = ("trained_now", "parameters_stored", "statistics_stored", "samples_stored")
    amounts = {kind: (stored or {}).get(kind, (0, 0)) for kind in kinds}
    how = {"size": 32, "crop_pct": 1.0, "interpolation": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3}
    config = {
        "format": 1,
        "threads": 1,
        "workers": 0,
        "checkpoint_every": None,
        "method": method,
        "options": options or {},
        "seed": seed,
        "backbone": {"name": "builtin", "sha256": "63fb1a20a19e0000"},
        "precision": "float32",
        "device": "cpu",
        "versions": {"prol": "0.1.0"},
        "dataset": {
            "name": "digits",
            "data": f"/home/{folder}",
            "options": {},
            "classes": 10,
            "train_images": 100,
            "test_images": 50,
        },
        "protocol": {
            "name": "disjoint",
            "tasks": len(history),
            "chunk": chunk,
            "class_order": "label",
            "options": {},
            "boundaries": True,
            "announce": announce,
        },
        "measures": {"points": 0 if a_auc is None else 4},
        "clock": None,
    }
    result = {
        "metrics": {
            "faa": history[-1],
            "caa": sum(history) / len(history),
            "forgetting": history[0] - history[-1],
            "faa_task_mean": history[-1],
            "caa_task_mean": history[-1],
            "forgetting_paper": 0.0,
            "bwt": 0.0,
            "average_accuracy": list(history),
            "average_accuracy_task_mean": list(history),
            "forgetting_history": [history[0] - accuracy for accuracy in history],
        },
        "anytime": {"a_auc": a_auc, "prequential": None, "learning_curve_area": None, "calibration_error": None},
        "footprint": {kind: {"count": count, "bytes": size} for kind, (count, size) in amounts.items()},
        "told": {
            "task_boundaries": True,
            "classes_of_next_task": announce,
            "weights": "builtin",
            "weights_sha256": "63fb1a20a19e0000",
            "preprocessing": how,
        },
        "class_accuracy": {},
        "skipped": {"train": 0, "test": 0},
        "clock": None,
    }
    return RunFiles(folder, config, result, {"train_images_per_second": speed}, side_by_side)
