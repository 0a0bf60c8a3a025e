from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from prol.evaluation import ChunkLearnt, ImagesSkipped, TaskEnded, TaskStarted
from prol.runs import Plan, display_for, start
from prol.runs.display import Lines, LiveBar
from runs.small_runs import small_plan


def plain_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=40)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_terminal_gets_a_bar_and_a_file_gets_lines() -> None:
    assert isinstance(display_for(plain_console()), Lines)
    assert isinstance(display_for(Console(file=io.StringIO(), force_terminal=True)), LiveBar)


def test_a_line_tells_speed_and_accuracy_of_each_task_and_is_never_broken() -> None:
    console = plain_console()
    lines = display_for(console)
    assert isinstance(lines, Lines)
    lines.tasks = 3
    lines(TaskStarted(0, ("a", "b"), told=True), 0.5)
    lines(ChunkLearnt(1, 0, 10, {}), 0.2)
    lines(ChunkLearnt(2, 0, 10, {}), 0.2)
    lines(TaskEnded(0, (75.0,), 75.0, classes_seen=2), 1.0)
    assert printed(console) == ["task 1/3: 50 images/s; 75.00 % on the 2 classes so far"]


def test_a_long_task_gives_a_sign_of_life_now_and_then() -> None:
    said: list[str] = []
    lines = Lines(said.append, seconds_between=30)
    lines.tasks, lines.chunks = 2, 100
    for chunk in range(1, 8):
        lines(ChunkLearnt(chunk, 1, 10, {}), 10.0)
    assert said == ["task 2/2: chunk 3 of 100; 1 images/s", "task 2/2: chunk 6 of 100; 1 images/s"]


def test_skipped_images_are_named_with_the_reason() -> None:
    for display in (display_for(console := plain_console()), LiveBar(console)):
        display(ImagesSkipped("train", 0, ("[red]/cat.jpg", "dog.jpg"), ("cut short", "no such file")), 0.1)
    assert printed(console) == ["warning: skipped unreadable train image [red]/cat.jpg (cut short) and 1 more"] * 2


def test_a_run_begins_with_a_line_that_says_what_and_where(tmp_path: Path, micro_vit: str) -> None:
    console, plan = plain_console(), small_plan(micro_vit, limit_per_class=1)
    assert isinstance(plan, Plan)
    start(plan, tmp_path / "run", display_for(console))
    first, *tasks = printed(console)
    assert first.startswith("ncm on digits: 3 tasks, 3 chunks of 5, seed 0, cpu float32, 1 thread, backbone test_vit@")
    assert first.endswith(f"from the start; writing to {tmp_path / 'run'}")
    assert len(tasks) == 3
