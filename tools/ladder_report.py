"""What the ladder's results say: a table, a figure, and every rule that does not hold.

    python tools/ladder_report.py results/ladder/small [--figure docs/ladder.png]

Reads the lines of JSON that `tools/ladder.py` wrote, and writes `summary.md` beside them. Rules, for PROL+ against each
rival in each cell: the mean paired difference is at least -1 point, or its 95 % interval reaches -1; the deviation over
seeds is at most 1 above that of the most accurate rival; no seed is more than 5 points below `ncm`; with at least five
images per class, mean confidence is within 5 points of accuracy, and the calibration error at most 5 (2,000 test
images or more) or at most 2 above what its own probabilities would give.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from ladder import GRADIENT, ORDER_FREE, REFERENCES, RIVALS, finished

OURS = "prol_plus"
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 10: 2.26, 20: 2.09}
"""Factors of 95 % intervals by the number of seeds."""
CellKey = tuple[str, int, int, str]
Table = dict[CellKey, dict[str, dict[int, dict[str, Any]]]]


def read(out: Path) -> Table:
    """Results by cell, method and seed; methods that no order changes count for both."""
    table: Table = defaultdict(lambda: defaultdict(dict))
    for (group, classes, images, order, seed, method), row in finished(out).items():
        orders = ("shuffled", "class order") if method in ORDER_FREE else (order,)
        for one in orders:
            table[(group, classes, images, one)][method][seed] = row
    return {cell: dict(methods) for cell, methods in sorted(table.items()) if OURS in methods}


def half_interval(values: Any) -> float:
    count = len(values)
    factor = STUDENT.get(count, 2.0)
    return factor * float(np.std(values, ddof=1)) / count**0.5 if count > 1 else float("nan")


def broken_rules(cell: CellKey, methods: dict[str, dict[int, dict[str, Any]]]) -> list[str]:
    """Sentences, one for each rule that does not hold."""
    ours, found = methods[OURS], []
    accuracy = {m: {s: row["accuracy"] for s, row in seeds.items() if s in ours} for m, seeds in methods.items()}
    for rival in (*RIVALS, *GRADIENT):
        seeds = sorted(accuracy.get(rival, {}))
        if not seeds:
            continue
        differences = np.array([ours[s]["accuracy"] - accuracy[rival][s] for s in seeds])
        half = half_interval(differences)
        if differences.mean() < -1 and not differences.mean() + half >= -1:
            found.append(f"{differences.mean():+.1f} ± {half:.1f} to {rival}")
        if rival == "ncm" and differences.min() < -5:
            found.append(f"a seed {differences.min():+.1f} to ncm")
    rivals = {m: np.mean(list(a.values())) for m, a in accuracy.items() if m in RIVALS and a}
    if rivals and len(ours) > 2:
        best = max(rivals, key=lambda m: rivals[m])
        spread, other = np.std(list(accuracy[OURS].values()), ddof=1), np.std(list(accuracy[best].values()), ddof=1)
        if spread > other + 1:
            found.append(f"deviation {spread:.1f}, {best} {other:.1f}")
    if cell[2] >= 5 or cell[2] == 0:
        mean = {key: np.mean([row[key] for row in ours.values()]) for key in ("confidence", "accuracy", "ece", "test")}
        expected = np.mean([row["ece_expected"] for row in ours.values()])
        if abs(mean["confidence"] - mean["accuracy"]) > 5:
            found.append(f"confidence {mean['confidence']:.1f}, accuracy {mean['accuracy']:.1f}")
        if mean["ece"] > (5 if mean["test"] >= 2000 else expected + 2):
            found.append(f"calibration error {mean['ece']:.1f}, of its own labels {expected:.1f}")
    return found


def summary(table: Table) -> str:
    """The page: one row for each cell."""
    known = {method for methods in table.values() for method in methods}
    shown = [method for method in (OURS, f"{OURS}:adapt_steps=0", *RIVALS, *REFERENCES) if method in known]
    lines = [f"| stream | images | order | seeds | {' | '.join(shown)} | confidence | error | broken rules |"]
    lines += ["|" + "---|" * (len(shown) + 7)]
    for cell, methods in table.items():
        group, classes, images, order = cell
        ours = methods[OURS]
        numbers = []
        for method in shown:
            seeds = [row["accuracy"] for row in methods.get(method, {}).values()]
            numbers.append(f"{np.mean(seeds):.1f} ± {np.std(seeds):.1f}" if seeds else "")
        confidence, error = (np.mean([row[key] for row in ours.values()]) for key in ("confidence", "ece"))
        rules = "; ".join(broken_rules(cell, methods))
        numbers += [f"{confidence:.1f}", f"{error:.1f}", rules]
        size = images or "1 to 50"
        lines.append(f"| {group}, {classes} classes | {size} | {order} | {len(ours)} | {' | '.join(numbers)} |")
    return "\n".join([*lines, *gradient_rows(table)]) + "\n"


def gradient_rows(table: Table) -> list[str]:
    """A second table: methods that train by gradients, which ran in a few cells."""
    cells = {cell: methods for cell, methods in table.items() if set(GRADIENT) & set(methods)}
    if not cells:
        return []
    shown = [OURS, *(method for method in GRADIENT if any(method in methods for methods in cells.values()))]
    lines = ["", f"| stream, seed 0 | images | {' | '.join(shown)} |", "|" + "---|" * (len(shown) + 2)]
    for (group, classes, images, _), methods in cells.items():
        numbers = [f"{methods[method][0]['accuracy']:.1f}" if method in methods else "" for method in shown]
        lines.append(f"| {group}, {classes} classes | {images} | {' | '.join(numbers)} |")
    return lines


def draw(table: Table, file: Path) -> None:
    """Accuracy against images per class, shuffled: full sets and a subset of each of the first two."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    wanted = [("cifar100", 100), ("cifar100", 12), ("cub200", 200), ("cub200", 12)]
    figure, axes = pyplot.subplots(1, len(wanted), figsize=(13, 3.6), layout="constrained")
    for axis, (group, classes) in zip(axes, wanted, strict=True):
        sizes = sorted(c[2] for c in table if c[:2] == (group, classes) and c[3] == "shuffled" and c[2])
        for method in (OURS, *RIVALS):
            rows = [table[(group, classes, size, "shuffled")].get(method, {}) for size in sizes]
            means = [np.mean([row["accuracy"] for row in one.values()]) if one else np.nan for one in rows]
            ours = method == OURS
            axis.plot(
                sizes, means, label=method, lw=2.5 if ours else 1, color="crimson" if ours else None, zorder=2 + ours
            )
        axis.set(xscale="log", title=f"{classes} classes of {group}", xlabel="images per class", xticks=sizes)
        axis.set_xticklabels([str(size) for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("accuracy, %")
    axes[-1].legend(fontsize=7)
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--figure", type=Path)
    wanted = parser.parse_args()
    table = read(wanted.out)
    (wanted.out / "summary.md").write_text(summary(table))
    if wanted.figure:
        draw(table, wanted.figure)
    broken = {cell: rules for cell, methods in table.items() if (rules := broken_rules(cell, methods))}
    for cell, rules in broken.items():
        print(*cell, "|", "; ".join(rules))
    print(f"{len(table)} cells, {len(broken)} with a broken rule")


if __name__ == "__main__":
    main()
