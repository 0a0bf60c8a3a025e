"""What is timed: learners with a given number of classes, and chunks for them."""

from __future__ import annotations

import numpy as np
import pytest

from golden_files import tiny_vit
from methods.small_streams import make_prol
from prol.backbones import ViT
from prol.bench.workload import MethodSpec, RandomChunks, Workload, prediction_step, training_step


@pytest.mark.parametrize(
    ("classes", "first_task", "current"),
    [(100, False, range(90, 100)), (10, False, range(5, 10)), (3, False, range(2, 3)), (10, True, range(10))],
)
def test_classes_are_announced_in_an_earlier_and_the_current_task(
    classes: int, first_task: bool, current: range
) -> None:
    learner, load = make_prol(), Workload(classes, first_task)
    load.announce(learner)
    assert load.current == current
    assert learner.classes == list(range(classes))
    assert learner.clock.first_row == current.start
    assert learner.clock.number == (0 if first_task else 1)


def test_no_class_is_new_while_steps_are_timed(tiny: ViT) -> None:
    learner, load = MethodSpec("prol", {"blocks": "3"}).learner(tiny, chunk=4), Workload(30)
    load.announce(learner)
    feed = load.chunks(4, learner.preprocessing.size)
    for _ in range(3):
        training_step(learner, feed)()
    assert len(learner.classes) == 30


def test_a_feed_holds_a_few_chunks_and_begins_again() -> None:
    feed = RandomChunks(5, 24, range(7, 9))
    seen = [feed.next() for _ in range(len(feed.all) + 1)]
    assert seen[0][0].shape == (5, 24, 24, 3)
    assert seen[0][0].dtype == np.uint8
    assert set(np.concatenate([labels for _, labels in seen])) == {7, 8}
    assert seen[-1][0] is seen[0][0]
    assert not np.array_equal(seen[0][0], seen[1][0])


def test_images_have_the_networks_input_size_unless_another_is_given() -> None:
    assert Workload().chunks(1, 64).next()[0].shape[1] == 64
    assert Workload(side=32).chunks(1, 64).next()[0].shape[1] == 32


def test_the_chunk_size_is_the_methods_own_where_it_has_one(tiny: ViT) -> None:
    assert MethodSpec("prol", {"blocks": "3"}).learner(tiny, 7).options.chunk == 7
    assert MethodSpec("prol", {"chunk": "3", "lr": "0.1"}).resolved(7).chunk == 3
    assert "chunk" not in MethodSpec("ncm").given(7)
    assert MethodSpec("prol", {"chunk": "3", "lr": "0.1"}).name == "prol:chunk=3,lr=0.1"


def test_a_batch_goes_through_the_network_together_unless_answers_depend_on_it() -> None:
    learner, released = make_prol(), make_prol(preset="released", chunk=4)
    feed = RandomChunks(9, 16, range(2))
    prediction_step(learner, feed)
    prediction_step(released, feed)
    assert learner.predict_batch == 9
    assert released.predict_batch == 4


def test_unknown_methods_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'prol'"):
        MethodSpec("prl").resolved(10)
    with pytest.raises(ValueError, match="unknown option 'rate'"):
        MethodSpec("prol", {"rate": 1}).resolved(10)
    with pytest.raises(ValueError, match="classes must be at least 2, got"):
        Workload(1)
    with pytest.raises(ValueError, match="side must be"):
        Workload(side=0)


def test_a_learner_is_made_on_the_backbone_given() -> None:
    vit = tiny_vit()
    assert MethodSpec("ncm").learner(vit, 10).backbone is vit
