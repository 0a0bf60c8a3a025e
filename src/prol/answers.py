"""Predictions: labels and their probabilities, from raw scores, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from prol.classes import Label

if TYPE_CHECKING:
    import pandas
    from torch import Tensor

MOST_PRINTED = 20
"""Images of a classification that are printed."""


@dataclass(frozen=True)
class Answer:
    """A class, its raw score, and its probability among all classes."""

    label: Label
    probability: float
    score: float


def ranked(
    scores: Tensor, classes: Sequence[Label], top: int = 1, probabilities: Tensor | None = None
) -> list[list[Answer]]:
    """The `top` predictions for each row of scores `[N, C]`, best first; of equal ones, the class seen earlier.

    `probabilities` `[N, C]` are calibrated ones; the softmax of scores without them.

    A class of which nothing was learnt yet (score minus infinity) is never predicted.

    >>> import torch
    >>> [best.label for best in ranked(torch.tensor([[0.5, 2.0, -torch.inf]]), ["cat", "dog", "eel"], top=3)[0]]
    ['dog', 'cat']
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if scores.shape[1] != len(classes):
        raise ValueError(f"{scores.shape[1]} scores for {len(classes)} classes: what was saved is inconsistent")
    if bool(scores.isnan().any() | scores.isposinf().any()):
        raise ValueError("some scores are not finite numbers: what was learnt is damaged")
    probable = (scores.double().softmax(dim=1) if probabilities is None else probabilities).tolist()
    rows = scores.argsort(dim=1, descending=True, stable=True)[:, :top].tolist()
    values = scores.tolist()
    return [
        [Answer(classes[row], likely[row], value[row]) for row in best if value[row] != float("-inf")]
        for best, likely, value in zip(rows, probable, values, strict=True)
    ]


@dataclass(frozen=True)
class Classification:
    """What a learner says about N images.

    `labels` has the most probable class of each. `probabilities` `[N, C]`, in the order of `learner.classes`, are
    calibrated: of predictions with 80 %, about 80 in 100 are right, for images like those learnt. `unknown` `[N]` is,
    for each image, the share of known images that were more familiar; above 0.95 it is probably none of the classes.
    None where the method has no familiarity or too few images were observed.

    >>> import torch
    >>> Classification(["cat", "eel"], torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0.2, 0.99]))
         probability  unknown
    cat       90.0 %     0.20
    eel       70.0 %     0.99
    """

    labels: list[Label]
    probabilities: Tensor
    unknown: Tensor | None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        titles, *rows = self._rows()
        width = max((len(row[0]) for row in rows), default=0)
        lines = ["  ".join([name.ljust(width), *cells]) for name, *cells in [titles, *rows]]
        more = len(self) - len(rows)
        return "\n".join(lines + [f"... and {more:,} more"] * (more > 0)) if rows else "no images"

    def _repr_html_(self) -> str:
        cells = self._rows()
        left = len(self) - len(cells) + 1
        return (html_table(cells) + f"<p>... and {left:,} more</p>" * (left > 0)) if len(self) else "<p>no images</p>"

    def _rows(self) -> list[list[str]]:
        """Titles, and the cells of the first images."""
        columns = self.to_dict()
        labels = [str(label) for label in columns["label"][:MOST_PRINTED]]
        rows = [labels, [f"{100 * one:9.1f} %" for one in columns["probability"][:MOST_PRINTED]]]
        titles = ["", "probability"]
        if "unknown" in columns:
            rows.append([f"{one:7.2f}" for one in columns["unknown"][:MOST_PRINTED]])
            titles.append("unknown")
        return [titles, *map(list, zip(*rows, strict=True))]

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each column, one value per image: label, its probability, and unknown where that is known."""
        best = self.probabilities.amax(dim=1).tolist() if len(self) else []
        columns: dict[str, list[Any]] = {"label": list(self.labels), "probability": best}
        return columns if self.unknown is None else columns | {"unknown": self.unknown.tolist()}

    def to_pandas(self) -> pandas.DataFrame:
        """The columns of `to_dict` as a data frame; needs pandas."""
        return data_frame(self.to_dict())


def html_table(cells: Sequence[Sequence[str]]) -> str:
    """A table of which the first row holds the titles; nothing where there is no row.

    >>> html_table([["class"], ["<b>"]])
    '<table><thead><tr><th>class</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    if not cells:
        return ""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell.strip())}</{tag}>" for cell in cells) + "</tr>"

    rows = "".join(row(one, "td") for one in cells[1:])
    return f"<table><thead>{row(cells[0], 'th')}</thead><tbody>{rows}</tbody></table>"


def data_frame(columns: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas needs pandas: pip install pandas, or use to_dict()") from None
    return pandas.DataFrame(columns)
