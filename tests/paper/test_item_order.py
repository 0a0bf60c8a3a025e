"""The runs of all items of a reproduction stand in one line: what is written when, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from paper.reproducing import Hear, Noting, Outcomes, Recording, small_scale
from prol.paper import item_files
from prol.paper.items import pick
from prol.paper.reproduction import render, reproduce
from prol.paper.scale import PaperScale
from prol.report.sheet import Sheet
from prol.runs import Plan
from prol.runs.inspection import Inspection

BLOCKS = {"blocks": "2"}


@pytest.fixture
def scale(micro_vit: str) -> PaperScale:
    """One run of the main table, two of the ablation."""
    return replace(small_scale(micro_vit), picked={"ncm": {}, "norms only": BLOCKS, "null prefix": BLOCKS})


def written(out: Path) -> set[str]:
    return {path.parent.name for path in out.glob("*/table.md")}


class Watching(Recording):
    """An executor that looks which items are written, before the first run and after each, and counts its calls."""

    def __init__(self, out: Path, failing: str = "") -> None:
        super().__init__()
        self.out, self.failing, self.calls, self.seen = out, failing, 0, list[set[str]]()

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        self.calls += 1
        self.seen.append(written(self.out))
        for path, plan in pending.items():
            if self.failing and path.name.startswith(self.failing):
                yield path, "it was not to be"
            else:
                yield from super().execute({path: plan}, hear)
            self.seen.append(written(self.out))


@pytest.mark.usefixtures("no_figures")
def test_an_item_is_written_when_its_own_runs_are_over(scale: PaperScale, tmp_path: Path) -> None:
    watching = Watching(tmp_path)
    done = reproduce(pick(["history", "ablation", "main"]), scale, tmp_path, watching)
    assert watching.calls == 1
    assert [name.split("-")[0] for name in watching.asked] == ["ncm", "prol", "prol"]
    two = {"history", "main"}
    assert watching.seen == [set(), two, two, {*two, "ablation"}]
    assert [one.sheet.item for one in done] == ["history", "ablation", "main"]


@pytest.mark.usefixtures("no_figures")
def test_an_item_that_has_all_its_runs_waits_for_nothing(scale: PaperScale, tmp_path: Path) -> None:
    reproduce(pick(["main"]), scale, tmp_path)
    (tmp_path / "main" / "table.md").unlink()
    watching = Watching(tmp_path)
    reproduce(pick(["ablation", "main"]), scale, tmp_path, watching)
    assert watching.seen[0] == {"main"}


@pytest.mark.usefixtures("no_figures")
def test_a_run_that_fails_is_told_and_its_item_waits_no_longer(scale: PaperScale, tmp_path: Path) -> None:
    watching, said = Watching(tmp_path, failing="ncm-"), list[str]()
    main, ablation = reproduce(pick(["main", "ablation"]), scale, tmp_path, watching, say=said.append)
    assert watching.seen[1] == {"main"}
    assert (main.failed, ablation.failed) == (True, False)
    assert any(line.startswith("ncm-") and "failed: it was not to be (1 of 3 runs" in line for line in said)
    assert any(line.endswith("finished (3 of 3 runs)") for line in said)


@pytest.mark.usefixtures("no_figures")
def test_what_is_timed_comes_last_and_is_counted_with_the_rest(scale: PaperScale, tmp_path: Path) -> None:
    order: list[str] = []

    class Ordered(Noting):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
            order.extend([self.name] * len(pending))
            yield from super().execute(pending, hear)

    said: list[str] = []
    only = replace(scale, picked={"PROL": {}})
    items = pick(["throughput", "main"])
    reproduce(items, only, tmp_path, Ordered("beside others"), Ordered("alone"), said.append)
    assert order == ["beside others", "alone"]
    assert [line.partition("(")[2][:11] for line in said if "failed" in line] == ["1 of 2 runs", "2 of 2 runs"]


class Interrupted(Recording):
    """An executor at which somebody presses Ctrl-C after the first run."""

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        yield next(super().execute(pending, hear))
        raise KeyboardInterrupt


@pytest.mark.usefixtures("no_figures")
def test_what_was_finished_before_an_interrupt_has_its_table(scale: PaperScale, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        reproduce(pick(["non-ptm", "ablation", "main"]), scale, tmp_path, Interrupted())
    assert written(tmp_path) == {"ablation"}
    [done] = render(pick(["ablation"]), tmp_path)
    first, second = done.sheet.tables[0].rows
    assert first.pairs[0].ours is not None
    assert second.remark == "not run: not finished"
    assert done.finished_runs == 1


def failing_once(error: BaseException, plot: Callable[[Sheet, Path], list[str]]) -> Callable[[Sheet, Path], list[str]]:
    errors = [error]

    def plotted(sheet: Sheet, folder: Path) -> list[str]:
        if errors:
            raise errors.pop()
        return plot(sheet, folder)

    return plotted


def test_an_interrupt_in_the_middle_of_writing_leaves_whole_tables(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_files, "plot_sheet", failing_once(KeyboardInterrupt(), item_files.plot_sheet))
    with pytest.raises(KeyboardInterrupt):
        reproduce(pick(["main"]), scale, tmp_path)
    assert "main-digits.png" in (tmp_path / "main" / "table.md").read_text(encoding="utf-8")
    assert (tmp_path / "main" / "main-digits.png").is_file()


def test_a_table_that_cannot_be_written_stops_no_run_and_is_tried_again(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError("no space left")
    monkeypatch.setattr(item_files, "plot_sheet", failing_once(full, item_files.plot_sheet))
    said: list[str] = []
    done = reproduce(pick(["main", "ablation"]), scale, tmp_path, say=said.append)
    assert "main cannot be written, runs continue without it for now: no space left" in said
    assert [one.finished_runs for one in done] == [1, 2]


@pytest.mark.slow
def test_a_table_that_can_never_be_written_is_an_error_at_the_end(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = item_files.plot_sheet

    def plotted(sheet: Sheet, folder: Path) -> list[str]:
        if sheet.item == "main":
            raise OSError("no space left")
        return plot(sheet, folder)

    monkeypatch.setattr(item_files, "plot_sheet", plotted)
    with pytest.raises(OSError, match="no space left"):
        reproduce(pick(["main", "ablation"]), scale, tmp_path)
    assert (tmp_path / "ablation" / "ablation-digits.png").is_file()


def test_an_interrupt_of_the_preparation_ends_it(
    scale: PaperScale, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Plan] = []

    def interrupted(inspection: Inspection, plan: Plan) -> None:
        del inspection
        asked.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(Inspection, "config", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(pick(["main", "ablation"]), scale, tmp_path)
    assert len(asked) == 1
