"""Mutants are drawn as intended, and a caught one is told from a survivor."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import mutant_drawing
import mutants


def after(source: str, kind: str) -> set[str]:
    return {edit.apply(source) for edit in mutant_drawing.Finder(source).found if edit.kind == kind}


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("flipped comparison", "y = a < b", {"y = a <= b", "y = a > b"}),
        ("flipped comparison", "y = (a) is not (b)", {"y = (a) is (b)"}),
        ("flipped comparison", "y = 'é' in b", {"y = 'é' not in b"}),
        ("swapped operator", "y = a + (b)", {"y = a - (b)"}),
        ("swapped operator", "y = -a", {"y = a"}),
        ("swapped operator", "y //= a", {"y *= a"}),
        ("off by one", "y = a[3]", {"y = a[4]"}),
        ("off by one", "y = a[:b]", {"y = a[:(b) + 1]"}),
        ("dropped statement", "f(\n  a\n)", {"pass"}),
        ("dropped statement", "self.a = b", {"pass"}),
        ("dropped statement", "def f(a):\n a = 1\n b = 2", {"def f(a):\n pass\n b = 2"}),
        ("dropped statement", "if a:\n raise E(1)", {"if a:\n pass"}),
        ("swapped arguments", "f(a, b, c=1)", {"f(b, a, c=1)"}),
        ("negated condition", "y = [a for a in b if a or c]", {"y = [a for a in b if not (a or c)]"}),
        ("negated condition", "while a: f()", {"while not (a): f()"}),
        ("flipped boolean", "f(a=True)", {"f(a=False)"}),
    ],
)
def test_an_edit_changes_the_source_as_its_kind_says(kind: str, source: str, expected: set[str]) -> None:
    assert after(source, kind) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""Text 1 < 2."""',
        "__all__ = [a[1]]",
        "def f(a: g[1], b: h(1, 2)) -> g[2]: return a",
        "a: g[1]",
        "if TYPE_CHECKING:\n a = 1",
        "assert a < 1, f(1, 2)",
        "logging.getLogger(a).info(b, 1)",
        "y = f(a, stacklevel=2)",
        "@f(frozen=True)\nclass A: pass",
        "y = f'{a + 1}'",
        "def f(a):\n stream = torch.cuda.Stream(1)\n return a + 1",
        "def f(a):\n if not a.is_cuda:\n  return a\n return a + 1",
        "y = 1 if a.type == 'cuda' else b".replace("'", '"'),
    ],
)
def test_what_a_cpu_does_not_run_and_what_people_read_stays(source: str) -> None:
    assert mutant_drawing.Finder(source).found == []


def test_only_the_branch_of_a_gpu_is_left_out() -> None:
    assert after("if a.is_cuda:\n b = 1\nelse:\n b = 2", "off by one") == {"if a.is_cuda:\n b = 1\nelse:\n b = 3"}
    assert not after("if a:\n raise E(1, 2)", "swapped arguments")


LIBRARY = (
    "def clipped(a, b):\n    if a > b:\n        return b\n    return a\n\n\ndef unused(a, b):\n    return a + b * 2\n"
)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A package with two packages, half tested."""
    for name, text in {
        "src/prol/__init__.py": "",
        "src/prol/clipping.py": LIBRARY,
        "src/prol/package/__init__.py": "",
        "src/prol/package/waiting.py": "def wait(n):\n    while n > 0:\n        n -= 1\n    return n\n",
        "tests/test_clipping.py": "from prol.clipping import clipped\n\n\ndef test_clipped():\n"
        "    assert [clipped(1, 2), clipped(3, 2)] == [1, 2]\n",
        "tests/other/test_all.py": "from prol.package.waiting import wait\n\n\ndef test_wait():\n"
        "    assert wait(2) == 0\n",
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow", "gpu"]\npythonpath = ["src"]\n',
    }.items():
        (tmp_path / "toy" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "toy" / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path / "toy"], check=True)
    return tmp_path / "toy"


def test_drawing_repeats_continues_and_takes_turns(toy: Path) -> None:
    found = mutant_drawing.mutants_of(toy)
    assert len({one.id for one in found}) == len(found)
    drawn = mutant_drawing.draw(found, 6, seed=0, least=2)
    assert drawn == mutant_drawing.draw(found, 6, seed=0, least=2)
    assert [one.package for one in drawn[:4]] == ["package", "top", "package", "top"]
    assert min(Counter(one.package for one in drawn).values()) >= 2
    assert len({(one.file, one.line) for one in drawn}) == len(drawn)
    assert any(mutant_drawing.draw(found, 6, seed=seed, least=2) != drawn for seed in (1, 2, 3))
    stored = drawn[-1].id
    assert stored in {one.id for one in mutant_drawing.draw(found, 6, 5, (stored, "gone"), least=2)}


@pytest.fixture
def copy(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[mutants.Copy]:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "copy").mkdir()
    copy = mutants.Copy(tmp_path / "copy", toy, libraries="", patience=10)
    yield copy
    copy.close()
    for tree in (toy, copy.tree):
        assert (tree / "src/prol/clipping.py").read_text() == LIBRARY


def test_a_caught_mutant_is_told_from_a_survivor(toy: Path, copy: mutants.Copy) -> None:
    mutant = {(one.line, one.after): one for one in mutant_drawing.mutants_of(toy)}
    near = mutant[2, "if a < b:"]
    caught = copy.examine_near(near)
    assert (caught["outcome"], caught["caught_by"]) == ("caught", "tests/test_clipping.py::test_clipped")
    unused, elsewhere = mutant[8, "return a - b * 2"], mutant[2, "while n >= 0:"]
    assert {copy.examine_near(one)["outcome"] for one in (unused, elsewhere)} == {"passed its package"}
    done = {one.id: outcome for one, outcome in copy.examine_far([near, unused, elsewhere])}
    assert (done[unused.id]["outcome"], done[unused.id]["caught_by"]) == ("survived", None)
    assert done[near.id]["caught_by"] == "tests/test_clipping.py::test_clipped"
    assert done[elsewhere.id]["caught_by"] == "tests/other/test_all.py::test_wait"


@pytest.mark.slow
def test_a_mutant_that_hangs_is_caught(toy: Path, copy: mutants.Copy) -> None:
    mutant = {(one.line, one.after): one for one in mutant_drawing.mutants_of(toy)}
    unused, hanging = mutant[8, "return a - b * 2"], mutant[3, "n += 1"]
    done = {one.id: outcome for one, outcome in copy.examine_far([unused, hanging])}
    assert done[unused.id]["outcome"] == "survived"
    assert done[hanging.id]["caught_by"] == "time limit in tests/other/test_all.py::test_wait"


def test_a_test_that_fails_anyway_catches_nothing(toy: Path, copy: mutants.Copy) -> None:
    mutant = {(one.line, one.after): one for one in mutant_drawing.mutants_of(toy)}
    (copy.tree / "tests/test_clipping.py").write_text("def test_clipped():\n    assert False\n")
    assert copy.examine_near(mutant[2, "if a < b:"])["outcome"] == "error"
    [(_, outcome)] = copy.examine_far([mutant[2, "if a < b:"]])
    assert outcome["outcome"] == "survived"


def test_a_summary_counts_by_room_and_gives_reasons() -> None:
    one = {"id": "a", "package": "data", "file": "f", "line": 1, "kind": "k", "before": "x", "after": "y"}
    records = [one | {"outcome": "survived"}, one | {"id": "b", "outcome": "caught"}, one | {"id": "c"}]
    said = mutants.summary(records, {"a": "equivalent"})
    assert "data             1 of    2 caught   50.0 %" in said
    assert "1 not run" in said
    assert said.endswith("  equivalent")
