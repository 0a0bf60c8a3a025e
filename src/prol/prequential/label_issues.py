"""Images whose labels are improbable: what was predicted for them before they were learnt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from prol.classes import Label
from prol.prediction import MOST_PRINTED, data_frame
from prol.prequential.statistics import ENOUGH

if TYPE_CHECKING:
    import pandas

SHARE = 0.2
"""Share of the judged images that is reported: on development data it holds all labels drawn at random."""


@dataclass(frozen=True)
class LabelIssue:
    """An image by the id it was learnt with, its label, and the most probable other class.

    Both probabilities are of the prediction before the image was learnt.
    """

    id: Label
    label: Label
    probability: float
    other: Label
    other_probability: float


@dataclass(frozen=True)
class LabelIssues:
    """Images whose labels are least probable, the least probable first, out of so many that were `judged`.

    >>> LabelIssues((LabelIssue("cat/7.jpg", "cat", 0.002, "dog", 0.97),), 40)
    1 of 40 judged images, by the probability of the label before learning
    image      label  probability  most probable other
    cat/7.jpg  cat          0.2 %  dog (97.0 %)
    """

    issues: tuple[LabelIssue, ...]
    judged: int

    @classmethod
    def of(cls, values: Mapping[str, Any], classes: Sequence[Label], share: float = SHARE) -> LabelIssues:
        """From the JSON part of a learner's state, `meta["method"]` in its files, and its classes.

        ValueError where nothing was recorded.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share}")
        found = values.get("prequential")
        if found is None or not found["capacity"]:
            raise ValueError("no ids are recorded: call enable_prequential(record_ids=True) before learn")
        most = math.ceil(share * found["judged"])
        rows = zip(
            found["ids"], found["labels"], found["probabilities"], found["predicted"], found["others"], strict=True
        )
        issues = [LabelIssue(name, classes[row], p, classes[other], q) for name, row, p, other, q in rows]
        return cls(tuple(issues[:most]), found["judged"])

    def __len__(self) -> int:
        return len(self.issues)

    def __iter__(self) -> Iterator[LabelIssue]:
        return iter(self.issues)

    def __getitem__(self, place: int) -> LabelIssue:
        return self.issues[place]

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {"judged": self.judged, "issues": [asdict(issue) for issue in self.issues]}

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each image; needs pandas."""
        names = ("id", "label", "probability", "other", "other_probability")
        return data_frame({name: [getattr(issue, name) for issue in self.issues] for name in names})

    def _headline(self) -> str:
        if not self.judged:
            return f"no image was judged: labels are judged once {ENOUGH} images of their class are known"
        return f"{len(self):,} of {self.judged:,} judged images, by the probability of the label before learning"

    def _cells(self) -> list[list[str]]:
        cells = [["image", "label", "probability", "most probable other"]] if self.issues else []
        for one in self.issues[:MOST_PRINTED]:
            other = f"{one.other} ({one.other_probability:.1%})".replace("%", " %")
            cells.append([str(one.id), str(one.label), f"{one.probability:.1%}".replace("%", " %"), other])
        return cells

    def _more(self) -> list[str]:
        left = len(self) - MOST_PRINTED
        return [f"and {left:,} more: to_pandas() has all"] if left > 0 else []

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max((len(row[place]) for row in cells), default=0) for place in range(3)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d}" for a, b, c, d in cells]
        return "\n".join([self._headline(), *lines, *self._more()])

    def _repr_html_(self) -> str:
        rows = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells())
        remarks = "".join(f"<p>{remark}</p>" for remark in self._more())
        return f"<p>{self._headline()}</p><table>{''.join(rows)}</table>{remarks}"
