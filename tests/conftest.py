"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from golden_files import tiny_vit
from prol.backbones import ResNet, ViT

# The same examples on every machine, however slow: what fails in one place fails everywhere.
settings.register_profile("same everywhere", derandomize=True, deadline=None)
settings.load_profile("same everywhere")


LONG = (
    "docs/one-class-at-a-time.md::",
    "docs/adapters.md::",
    "prol.testing.checks.check_learner",
    "test_the_examples_of_a_page_run[own-images]",
    "test_the_examples_of_a_page_run[reproduced]",
    "test_the_examples_of_a_page_run[comparing]",
    "test_the_python_examples_of_a_page_run[sweep]",
    "test_the_python_examples_of_a_page_run[trackers]",
    "test_the_python_examples_of_a_page_run[sharing]",
    "test_the_examples_of_a_page_run[extending]",
    "test_the_examples_of_a_page_run[artifacts]",
    "test_the_examples_of_a_page_run[report]",
    "test_the_examples_of_a_page_run[trackers]",
    "test_the_examples_of_a_page_run[replay]",
    "test_the_examples_of_a_page_run[sweep]",
    "test_the_examples_of_a_page_run[start]",
    "test_every_method_predicts_as_in_torch[prol_plus]",
    "test_the_smallest_networks_learn_predict_save_load_and_resume[mobilenetv4_conv_small]",
    "test_every_method_that_needs_features_alone_takes_a_convolutional_network[layup]",
    "test_no_request_that_the_schema_allows_is_a_server_error[fuzzing-5]",
    "docs/index.md::",
    "docs/start.md::",
    "docs/probabilities.md::",
    "docs/unknown.md::",
    "test_tables_are_what_the_runs_say[throughput]",
    "test_tables_are_what_the_runs_say[appendix]",
    "test_tables_are_what_the_runs_say[history]",
)
"""Examples and cases that take long; others of their kind run with the fast tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in item.nodeid for name in LONG):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def threads_stay() -> Iterator[None]:
    """A test that left more threads than cores behind would slow down all that follow."""
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.fixture(autouse=True, scope="session")
def no_fsync() -> Iterator[None]:
    """No test outlasts a power cut, and a disk takes milliseconds for each file; processes of their own still do it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture
def tiny() -> ViT:
    """The golden files' tiny ViT in float64."""
    return tiny_vit()


@pytest.fixture(scope="session")
def small_vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a ViT that sees 32 x 32 pixels as 4 patches."""
    from runs.small_runs import write_small_vit

    return write_small_vit(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def micro_vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """As `small_vit`, with six blocks of width 64: for runs whose accuracy does not matter."""
    from runs.small_runs import write_small_vit

    return write_small_vit(tmp_path_factory.mktemp("weights"), "test_vit")


@pytest.fixture(scope="session")
def finished(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a finished small run of a method, made once; copy it to change it."""
    from prol.runs import start
    from runs.small_runs import small_plan

    @cache
    def folder(method: str) -> Path:
        return start(small_plan(micro_vit, method), tmp_path_factory.mktemp("finished") / method).path

    return folder


@pytest.fixture
def small_resnet() -> ResNet:
    """Four channels wide, for 16 x 16 pixels, in float64."""
    return ResNet(4, size=16, precision="float64")


@dataclass(frozen=True)
class Outcome:
    """What the command line gave; taken apart it is exit code, output and errors."""

    code: int
    out: str
    err: str

    def __iter__(self):
        return iter((self.code, self.out, self.err))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]):
    """Calls the command line in this process."""
    from prol.cli.app import main

    def call(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return call
