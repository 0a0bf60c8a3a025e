"""Shell examples of the documentation are run, or say why they are not.

Right before a block stands one of these comments:

    <!-- run -->                          as it is printed
    <!-- run with: FLAGS -->              with these flags behind run, compare and sweep, which make them small;
                                          the slow suite runs them as printed
    <!-- run as a service -->             `prol serve` first, then clients of it
    <!-- not run: REASON -->

Blocks that only install need none, and transcripts of requests with their answers are of the kind `console`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from docs.pages import DOCS, ROOT, Block, blocks, pages
from docs.shell import INSTALLING, is_shell, lay_out_images, run_block, words_of
from docs.test_extending import install

MARKS = re.compile(r"run|run with: \S.*|run as a service|not run: \S.*")
LEFT_BEHIND = {
    "start": ["runs/demo/result.json", "run.png", "my-model/meta.json"],
    "own-images": ["runs/mine/split.json", "my-model/model.safetensors", "shop/meta.json"],
    "artifacts": ["my-model/README.md", "answers.json"],
    "extending": ["runs/naive_bayes/result.json", "runs/compare-digits/comparison.md"],
    "check": [],
    "comparing": ["runs/compare-digits/comparison.json"],
    "results": [],
    "report": ["report.html"],
    "reproduce": [],
    "reproduced": [],
    "sweep": [],
    "trackers": ["runs/mine/result.json"],
    "replay": ["runs/er/result.json"],
}
"""Pages with examples that run, and some of the files that these must write."""
RESULTS = {"results": ("cifar100", "cub200"), "report": ("cifar100_iblurry",), "reproduced": ("reproduce",)}
"""Pages whose examples read result files."""
MINUTES = ("start", "own-images", "artifacts")
"""Pages whose examples take minutes as they are printed."""


def examples(stem: str) -> list[Block]:
    return [block for block in blocks(DOCS / f"{stem}.md") if is_to_run(block)]


def is_to_run(block: Block) -> bool:
    return is_shell(block) and block.mark.startswith("run")


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_every_shell_block_says_whether_it_is_run(page: Path) -> None:
    for block in filter(is_shell, blocks(page)):
        assert block.kind == "sh", f"{block.place}: write ```sh before commands"
        if all(words[0] in INSTALLING for words in words_of(block)):
            continue
        assert MARKS.fullmatch(block.mark), (
            f"{block.place} has {block.mark!r} before it: write <!-- run -->, <!-- run with: FLAGS -->, "
            f"<!-- run as a service --> or <!-- not run: REASON --> on the line before"
        )
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (?:[A-Z_]+=\S+ )*(?:prol|python) .*", text, re.MULTILINE)
    assert not indented, f"{page}: put commands into ```sh blocks"


def test_every_page_with_examples_to_run_is_run() -> None:
    found = {page.stem for page in pages() if any(map(is_to_run, blocks(page)))}
    assert found == set(LEFT_BEHIND)


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stem: str) -> Path:
    """A folder that has what the page speaks of."""
    if stem in RESULTS:
        for name in RESULTS[stem]:
            shutil.copytree(ROOT / "results" / name, tmp_path / "results" / name)
    elif stem == "extending":
        install(tmp_path)
    else:
        lay_out_images(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("stem", LEFT_BEHIND)
def test_the_examples_of_a_page_run(stem: str, somewhere: Path, command) -> None:
    for block in examples(stem):
        run_block(block, command)
    assert [name for name in LEFT_BEHIND[stem] if not (somewhere / name).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("stem", MINUTES)
def test_the_examples_of_a_page_run_as_printed(stem: str, somewhere: Path, command) -> None:
    for block in examples(stem):
        run_block(block, command, as_printed=True)
    assert [name for name in LEFT_BEHIND[stem] if not (somewhere / name).is_file()] == []
