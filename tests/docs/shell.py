"""Running the shell examples of a page: `prol` in this process, a service and its clients as processes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from docs.pages import Block
from prol.data.builtin import glyphs
from runs.small_runs import environment
from serve.running import DEADLINE, eventually

INSTALLING = ("pip", "git", "cd", "make")
"""Commands that set things up; blocks of nothing else need no mark."""
SMALLER = ("run", "compare", "sweep")
"""Verbs of prol that take the flags of a mark `run with: FLAGS`."""
PRINTED_PORT = "8000"

Command = Callable[..., tuple[int, str, str]]


def words_of(block: Block) -> list[list[str]]:
    """The commands of a block, each as its words; comments are left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def is_shell(block: Block) -> bool:
    """Whether it is written as a shell example, or looks like one."""
    looks_like_one = re.match(r"\s*(prol|pip|curl|python|make) ", block.text) is not None
    return block.kind == "sh" or (not block.kind and looks_like_one)


def run_block(block: Block, command: Command, as_printed: bool = False) -> None:
    """Runs every command of a block; each must end well. Smaller flags are left out if it is to run as printed."""
    if block.mark == "run as a service":
        run_service(block)
        return
    smaller = shlex.split(block.mark.partition("run with:")[2])
    for words in words_of(block):
        assert words[0] == "prol", f"{block.place} runs {words[0]}: mark it as not run, or teach tests/docs/shell.py"
        arguments, target = _redirected(words[1:])
        if words[1] in SMALLER and not as_printed:
            arguments += smaller
        code, out, err = command(*arguments)
        assert code == 0, f"{block.place}: `{shlex.join(words)}` gave {code}\n{out}\n{err}"
        assert out.strip(), f"{block.place}: `{shlex.join(words)}` said nothing"
        if target is not None:
            Path(target).write_text(out)


def run_service(block: Block) -> None:
    """The first command is the service, on a port of its own choice; the others are its clients."""
    server, *clients = words_of(block)
    assert server[:2] == ["prol", "serve"]
    with _serving([word if word != PRINTED_PORT else "0" for word in server[1:]]) as address:
        for words in clients:
            assert words[0] == "curl"
            asked = [word.replace(f"localhost:{PRINTED_PORT}", address) for word in words[1:]]
            done = subprocess.run(["curl", "--silent", "--fail-with-body", *asked], capture_output=True, text=True)
            assert done.returncode == 0, f"{block.place}: {shlex.join(words)}\n{done.stdout}{done.stderr}"
            assert done.stdout.startswith("{"), f"{block.place}: {done.stdout}"


@contextmanager
def _serving(arguments: list[str]) -> Iterator[str]:
    log = Path("service.log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "prol", *arguments], env=environment(), stdout=output, stderr=subprocess.STDOUT
        )
    try:

        def address() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"^serving .* on http://(\S+)$", log.read_text(), re.MULTILINE)
            return found and found[1]

        yield eventually(address)
    finally:
        process.terminate()
        assert process.wait(DEADLINE) == 0, log.read_text()


def _redirected(words: list[str]) -> tuple[list[str], str | None]:
    """Arguments, and the file that takes what is printed, if there is one."""
    return (words[: words.index(">")], words[words.index(">") + 1]) if ">" in words else (words, None)


def lay_out_images(folder: Path) -> None:
    """What the pages speak of as being there: `photos/CLASS`, and new images under several names."""
    data = glyphs()
    for label in range(4):
        place = folder / "photos" / data.class_names[label]
        place.mkdir(parents=True)
        rows = np.flatnonzero(data.train.labels == label)[:5]
        for number, image in enumerate(data.train.load(rows).images):
            Image.fromarray(np.asarray(image)).save(place / f"{number}.jpg")
    images = [np.asarray(image) for image in data.test.load(range(2)).images]
    for place, ending in (("new", "jpg"), ("more-photos", "jpg"), ("old", "png")):
        (folder / place).mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / place / f"{number}.{ending}")
    Image.fromarray(images[0]).save(folder / "new.jpg")
