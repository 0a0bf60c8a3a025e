from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from prol.report.page import find_runs, page_of, sections_of
from prol.report.page.document import parts_of
from report.run_folders import RESULTS, Page, change, write_run

PARTS = (
    *("Comparison", "After each task", "At any time", "Accuracy matrices", "Stored state", "Speed", "The stream"),
    *("Information given to each learner", "Settings"),
)


def report(*folders: Path) -> str:
    found = find_runs(folders)
    sections, duplicates = sections_of(found)
    return page_of(sections, [*found.left_out, *duplicates])


def notes(folder: Path, part: str) -> str:
    """The sentences of a part of the only section."""
    [section], _ = sections_of(find_runs([folder]))
    return " ".join(next(one for one in parts_of(section) if one.key == part).notes)


@pytest.fixture(scope="module")
def digits() -> str:
    return report(RESULTS / "digits")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Runs whose every name is an attack."""
    folder, evil = tmp_path_factory.mktemp("odd"), "<script>alert(1)</script>"
    run = write_run(
        folder / "x'\"&<b onclick=alert(1)>-seed0",
        method='"><img src=x onerror=alert(1)>',
        options={evil: "</style><script>"},
        classes=[evil, "$\\frac{", "</svg>", "\u202eabc\x00", "]]>", "-->"],
        points=[[50, 2, 5, 10], [100, 4, 9, 20]],
    )
    config = json.loads((run / "config.json").read_text())
    config["dataset"] |= {"name": "</title><script>alert(2)</script>", "notes": [evil], "licence": evil}
    change(run / "config.json", dataset=config["dataset"], versions={"prol": evil})
    (folder / "<i>-unfinished").mkdir()
    (folder / "<i>-unfinished" / "config.json").write_text("{}")
    return report(folder)


def test_the_page_needs_nothing_from_outside(digits: str) -> None:
    page = Page(digits)
    for element in page.elements():
        for name, value in element.attributes.items():
            assert not re.search(r"https?:|//", value) or name == "content", (element.tag, name, value)
            if name in ("href", "xlink:href", "src"):
                assert value.startswith(("#", "data:image/png;base64,")), value
        assert element.tag not in ("link", "iframe", "object", "img", "base", "form")
    assert "@import" not in digits
    assert not re.search(r"url\((?!#)", digits)
    referred = set(re.findall(r'(?:href="|url\()#([\w-]+)', digits))
    ids = [element.attributes["id"] for element in page.elements() if "id" in element.attributes]
    assert referred <= set(ids)
    assert len(ids) == len(set(ids))


def test_every_part_is_there_with_its_plots_and_they_are_described(digits: str) -> None:
    page = Page(digits)
    assert [heading.words() for heading in page.root.all("h1")] == ["Report on digits"]
    assert [heading.words() for heading in page.root.all("h2")] == ["digits: disjoint, 5 tasks"]
    assert tuple(heading.words() for heading in page.root.all("h3")) == PARTS
    plots = page.root.all("svg")
    assert len(plots) == len(page.root.all("figure")) == 2 + 6 + 3
    assert all(picture.attributes["role"] == "img" and picture.attributes["aria-label"] for picture in plots)
    for table in page.root.all("table"):
        assert {cell.attributes.get("scope") for cell in table.all("th")} == {"col", "row"}
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in digits
    assert "no run was evaluated between tasks" in digits


def test_its_numbers_are_those_of_the_files(digits: str) -> None:
    table = Page(digits).table("Best final accuracy")
    titles, rows = table[0], {row[0]: row for row in table[1:]}
    assert titles[:4] == ["method", "FAA", "CAA", "forgetting"]
    assert list(rows) == ["prol_plus", "ranpac:features=2000", "randumb:features=2000", "foal", "slda", "ncm"]
    for name, row in rows.items():
        folder = name.replace(":", "-")
        results = [
            json.loads((RESULTS / "digits" / f"{folder}-seed{seed}" / "result.json").read_text()) for seed in range(3)
        ]
        for title in ("FAA", "CAA", "forgetting"):
            values = [result["metrics"][title.lower()] for result in results]
            assert row[titles.index(title)] == f"{fmean(values):.2f} ± {stdev(values):.2f}"
        stored = [results[0]["footprint"][kind]["bytes"] for kind in ("parameters_stored", "statistics_stored")]
        amount, unit = row[titles.index("bytes stored")].split()
        assert float(amount) * {"kB": 1e3, "MB": 1e6}[unit] == pytest.approx(sum(stored), rel=0.01)
        assert row[titles.index("samples stored")] == "none"
    history = Page(digits).table("Average accuracy after each task")
    values = [
        json.loads((RESULTS / f"digits/ncm-seed{seed}/result.json").read_text())["metrics"]["average_accuracy"][1]
        for seed in range(3)
    ]
    assert next(row for row in history if row[0] == "ncm")[2] == f"{fmean(values):.2f} ± {stdev(values):.2f}"


def test_names_from_files_are_harmless(odd: str) -> None:
    page = Page(odd)
    assert len(page.root.all("script")) == 1
    assert len(page.root.all("style")) == 1
    for element in page.elements():
        assert element.tag not in ("img", "i", "b")
        assert not any(name.startswith("on") for name in element.attributes)
        assert element.attributes.get("role") != "presentation"
    assert "\u202e" not in odd
    assert "\x00" not in odd
    assert "<script>alert(1)</script>" in page.root.words()  # as words to read
    assert "script-src 'sha256-" in odd


def test_what_is_not_finished_or_damaged_is_said_and_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0")
    stopped = write_run(tmp_path / "ncm-seed1", 1)
    (stopped / "result.json").unlink()
    (write_run(tmp_path / "ncm-seed2", 2) / "result.json").write_text("{")
    (write_run(tmp_path / "ncm-seed3", 3) / "config.json").unlink()
    change(write_run(tmp_path / "ncm-seed4", 4) / "result.json", accuracy_matrix=[[1.0]])
    change(write_run(tmp_path / "ncm-seed5", 5) / "result.json", metrics={})
    found = find_runs([tmp_path])
    assert [run.config["seed"] for run in found.runs] == [0]
    reasons = {Path(one.run).name[-1]: one.reason for one in found.left_out}
    assert reasons["1"] == f"not finished: resume it with `prol resume {stopped}`"
    assert reasons["2"].startswith("result.json: it cannot be read as JSON (")
    assert reasons["3"].startswith("it has no config.json")
    assert reasons["4"].startswith("result.json: not every list is of 3 tasks; the file is damaged")
    assert reasons["5"].startswith("result.json: metrics.faa is missing; the file is damaged or was written by another")
    page = report(tmp_path)
    assert all(f"ncm-seed{seed}" in page for seed in range(1, 6))
    assert "Left out" in page


def test_without_times_the_speed_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    for name in ("ncm", "slda"):
        write_run(tmp_path / f"{name}-seed0", method=name)
    (tmp_path / "ncm-seed0" / "timing.json").unlink()
    assert "Left out, for they have no timing.json: ncm." in notes(tmp_path, "speed")
    (tmp_path / "slda-seed0" / "timing.json").unlink()
    page = report(tmp_path)
    assert "Left out: no run has a timing.json." in page
    assert "tasks, all drawn alike" in page


def test_speeds_name_what_they_were_timed_on_and_warn_where_that_differs(tmp_path: Path) -> None:
    for name in ("ncm", "slda"):
        write_run(tmp_path / f"{name}-seed0", method=name)
    assert "imed on" not in notes(tmp_path, "speed")
    change(tmp_path / "ncm-seed0" / "timing.json", hardware=["NVIDIA H200"])
    assert "compared: ncm on NVIDIA H200; slda on unknown hardware." in notes(tmp_path, "speed")
    change(tmp_path / "slda-seed0" / "timing.json", hardware=["NVIDIA H200"])
    assert "Timed on NVIDIA H200." in notes(tmp_path, "speed")
    change(tmp_path / "slda-seed0" / "timing.json", hardware=["NVIDIA H200", "<b>an EPYC</b>"])
    assert "slda on &lt;b&gt;an EPYC&lt;/b&gt; and NVIDIA H200." in report(tmp_path)


def test_points_are_drawn_as_means_over_seeds(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0", 0, points=[[50, 2, 5, 10], [100, 4, 18, 20]])
    write_run(tmp_path / "ncm-seed1", 1, points=[[50, 2, 7, 10], [100, 4, 12, 20]])
    page = Page(report(tmp_path))
    words = [picture.attributes["aria-label"] for picture in page.root.all("svg")]
    assert any(one.startswith("Accuracy at any time") and one.endswith("ncm 75.0.") for one in words)
    assert page.table("Best final accuracy")[0][4] == "A_AUC"


def test_each_stream_has_a_section_and_says_what_tells_it_from_others(tmp_path: Path) -> None:
    write_run(tmp_path / "one" / "ncm-seed0")
    write_run(tmp_path / "two" / "ncm-seed0", chunk=20)
    write_run(tmp_path / "three" / "ncm-seed0", tasks=2)
    for number, name in enumerate(("four", "five")):
        clock = {"step_seconds": [0.1 + number] * 100}
        change(write_run(tmp_path / name / "ncm-seed0") / "config.json", clock=clock)
    folders = [tmp_path / name for name in ("one", "two", "three", "four", "five")]
    sections, duplicates = sections_of(find_runs(folders))
    assert [section.title for section in sections] == [
        "digits: disjoint, 3 tasks",
        "digits: disjoint, 3 tasks (chunk 20)",
        "digits: disjoint, 2 tasks",
        "digits: disjoint, 3 tasks (step seconds 100 values)",
        "digits: disjoint, 3 tasks (step seconds 100 values), again (2)",
    ]
    assert duplicates == []
    assert len({section.key for section in sections}) == 5


def test_runs_of_one_name_with_other_options_have_their_own_rows_and_duplicates_count_once(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-digits-seed0", options={"distance": "cosine"})
    write_run(tmp_path / "ncm-digits-seed0-2", options={"distance": "euclidean"})
    write_run(tmp_path / "ncm-digits-seed1", 1, options={"distance": "cosine"})
    again = write_run(tmp_path / "again" / "ncm-seed1", 1, options={"distance": "cosine"})
    sections, duplicates = sections_of(find_runs([tmp_path, tmp_path / "again"]))
    names = {row.name: row.seeds for row in sections[0].rows}
    assert names == {"ncm": (0, 1), "ncm:distance=euclidean": (0,)}
    assert [(one.run, one.reason) for one in duplicates] == [
        (str(tmp_path / "ncm-digits-seed1"), f"it has method, options, stream and seed of {again}")
    ]


def test_many_methods_and_classes_stay_readable(tmp_path: Path) -> None:
    classes = [f"a bird with a long name {number}" for number in range(200)]
    for number in range(14):
        write_run(
            tmp_path / f"m-x={number}-seed0",
            method="m",
            options={"x": number},
            classes=classes,
            tasks=4,
            history=tuple(90.0 - number - task for task in range(4)),
            stored={"statistics_stored": (number, 8 * number), "samples_stored": (number % 2, number % 2)},
        )
    page = Page(report(tmp_path))
    lines = [one for one in page.root.all("svg") if "lines over after task" in one.attributes["aria-label"]]
    assert len(lines) == 4  # accuracy and forgetting, seven lines in each
    named = [[text.words() for text in line.all("text") if "m:x=" in text.text] for line in lines]
    assert [len(names) for names in named] == [7] * 4
    stream = next(one for one in page.root.all("svg") if "200 classes" in one.attributes["aria-label"])
    assert "long name" not in stream.words()
    assert "a bird with a long name 199" in page.table("Tasks, seed 0")[4][4]
    assert [row[0] for row in page.table("Best final accuracy")[1:]] == [f"m:x={n}" for n in range(14)]


def test_the_stream_is_drawn_as_it_was_counted(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ncm-seed0", tasks=2)
    names = [f"class {number}" for number in range(4)]
    content = {"samples": 6, "task_starts": [0, 3], "classes": names, "presence": ["2 0", "1 0", "0 1", "0 2"]}
    (run / "stream.json").write_text(json.dumps(content))
    page = report(tmp_path)
    assert "Counted from the stream itself." in page
    assert "data:image/png;base64," in page
    (run / "stream.json").write_text(json.dumps(content | {"presence": ["2 0"]}))
    assert "its places within the task are not in these files" in notes(tmp_path, "stream")


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    write_run(tmp_path / "ncm-seed0")
    assert report(tmp_path) == report(tmp_path)
