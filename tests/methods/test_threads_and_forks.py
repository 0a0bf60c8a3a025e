"""Predictions from several threads at once, and processes that were forked."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from deadline import deadline
from methods.every_method import METHODS, cases, make, teach
from methods.small_streams import pictures
from prol.learner import Learner
from prol.testing.stream import difference

FAST = ("ncm", "ranpac", "prol_plus", "prol", "l2p", "mos", "gdumb")


@pytest.mark.parametrize("method", cases(METHODS, fast=FAST))
def test_threads_that_predict_at_once_get_what_each_would_get_alone(method: str) -> None:
    """The first of them solve or train what predictions need, several at once."""
    images = [pictures([0, 1, 2, 3], seed=seed) for seed in range(8)]
    alone = [teach(make(method), tasks=[[0, 1, 2]]).predict(batch) for batch in images]
    learner = teach(make(method), tasks=[[0, 1, 2]])
    before = learner.state()
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(learner.predict, images))
        copies = list(threads.map(lambda _: learner.clone(), range(2)))
        verdicts = list(threads.map(learner.classify, images))
    assert all(torch.equal(one, other) for one, other in zip(together, alone, strict=True))
    for batch, verdict in zip(images, verdicts, strict=True):
        assert torch.equal(verdict.probabilities, learner.classify(batch).probabilities)
    assert all(difference(copy.state(), before) == "" for copy in (learner, *copies))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_a_fork(learner: Learner) -> str:
    """What a forked process says that predicts, first with its threads as they are, then with one."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = ""
        try:
            try:
                learner.predict(pictures([0]))
            except RuntimeError as error:
                said = str(error)
            torch.set_num_threads(1)
            said += f" | {learner.predict(pictures([0])).shape[1]} classes"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    try:
        with deadline(20), os.fdopen(read) as pipe:
            return pipe.read()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.usefixtures("two_threads")
def test_a_process_forked_after_learning_is_told_what_to_do() -> None:
    learner = teach(make("ncm"), tasks=[[0, 1]])
    said = in_a_fork(learner)
    assert said.startswith("this process was forked after torch had run in its parent")
    assert "'spawn'" in said
    assert said.endswith("| 2 classes")
    assert learner.predict(pictures([0])).shape == (1, 2)  # the parent goes on


def test_a_fork_with_one_thread_computes() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert in_a_fork(teach(make("ncm"), tasks=[[0, 1]])) == " | 2 classes"
    finally:
        torch.set_num_threads(before)
