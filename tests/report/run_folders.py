"""Folders of finished runs with whole files, written without any run; and a page taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from report.finished_runs import finished_run

RESULTS = Path(__file__).parents[2] / "results"


def write_run(folder: Path, seed: int = 0, *, tasks: int = 3, classes: list[str] | None = None, **given: Any) -> Path:
    """Writes config.json, result.json and timing.json of a run whose accuracy falls by ten with each task."""
    history = given.pop("history", None) or tuple(90.0 - 10 * task for task in range(tasks))
    points = given.pop("points", [])
    run = finished_run(folder.name, seed, history, a_auc=50.0 if points else None, **given)
    names = classes or [f"class {number}" for number in range(2 * tasks)]
    each = len(names) // tasks
    result = {
        **run.result,
        "accuracy_matrix": [
            [history[after] if task <= after else 0.0 for after in range(tasks)] for task in range(tasks)
        ],
        "test_sizes": [10] * tasks,
        "task_classes": [names[task * each : (task + 1) * each] for task in range(tasks)],
        "points": points,
    }
    timing = {
        "train_images_per_second": 100.0,
        "test_features_reused": True,
        "test_images_per_second": None,
        "train_seconds": 3.0,
        "test_seconds": 1.0,
        "tasks": [{"train_images": 100, "train_seconds": 1.0, "test_seconds": 0.5} for _ in range(tasks)],
    }
    folder.mkdir(parents=True)
    for name, content in (("config", run.config), ("result", result), ("timing", timing)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def change(file: Path, **changes: Any) -> None:
    """Replaces top-level values of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        here = [self] if self.tag == tag else []
        return here + [found for element in self.inside for found in element.all(tag)]

    def words(self) -> str:
        """All text in and below it, with single spaces."""
        return " ".join(self.text.split())


class Page(HTMLParser):
    """A page as a tree; a tag that is not closed, or closes another, is a mistake."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.root = Element("root", {})
        self.open = [self.root]
        self.feed(content)
        self.close()
        assert self.open == [self.root], f"never closed: {[element.tag for element in self.open]}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attributes})
        assert len(element.attributes) == len(attributes), f"twice the same attribute in <{tag}>"
        self.open[-1].inside.append(element)
        if tag not in ("meta", "wbr"):
            self.open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.text += data

    def elements(self) -> list[Element]:
        def below(element: Element) -> list[Element]:
            return [one for inner in element.inside for one in (inner, *below(inner))]

        return below(self.root)

    def table(self, label: str) -> list[list[str]]:
        """The cells of the first table of that label, titles first."""
        tables = [one for one in self.root.all("table") if label in one.attributes["aria-label"]]
        return [[cell.words() for cell in row.inside] for row in tables[0].all("tr")]
