"""Streaming LDA and river's own classifiers, which predict each sample of river's data sets before they learn it.

python tools/compare_on_river.py --out results/river/accuracy.json
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import version
from pathlib import Path

from river import datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing, tree

from prol.integrations import river_models

MODELS = {
    "river_models.StreamingLDA": river_models.StreamingLDA,
    "StandardScaler | SoftmaxRegression": lambda: preprocessing.StandardScaler() | linear_model.SoftmaxRegression(),
    "HoeffdingTreeClassifier": tree.HoeffdingTreeClassifier,
    "GaussianNB": naive_bayes.GaussianNB,
}
STREAMS = {"ImageSegments": datasets.ImageSegments, "Phishing": datasets.Phishing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    out = parser.parse_args().out
    found: dict[str, dict[str, float]] = {}
    for name, make in MODELS.items():
        scores = {
            stream: evaluate.progressive_val_score(open_stream(), make(), metrics.Accuracy()).get()
            for stream, open_stream in STREAMS.items()
        }
        found[name] = {stream: round(100 * share, 2) for stream, share in scores.items()}
        print(name, found[name], flush=True)
    content = {"accuracy": found, "versions": {"river": version("river"), "prol": version("prol")}}
    out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
