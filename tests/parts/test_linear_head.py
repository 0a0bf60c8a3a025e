"""One linear map over all classes, growing with them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine.adam import Adam, part_gradients
from prol.engine.heads import LinearHead

WIDTH = 6


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(*sizes: int, deviation: float = 1.0) -> LinearHead:
    head, random = LinearHead(WIDTH, torch.device("cpu"), torch.float64), torch.Generator().manual_seed(0)
    for size in sizes:
        head.append(size, random, deviation)
    return head


def test_it_begins_without_classes() -> None:
    assert make().logits(drawn(4, WIDTH)).shape == (4, 0)


def test_new_rows_are_zero_and_draw_nothing_unless_a_deviation_is_given() -> None:
    head, random = make(), torch.Generator().manual_seed(0)
    before = random.get_state()
    head.append(3, random)
    assert torch.equal(head.weight.rows, torch.zeros(3, WIDTH).double())
    assert torch.equal(head.bias.rows, torch.zeros(3).double())
    assert torch.equal(random.get_state(), before)


def test_a_deviation_makes_weights_normal_and_leaves_biases_zero() -> None:
    head = make(2000, deviation=0.02)
    assert abs(head.weight.rows.std() - 0.02) < 0.001
    assert torch.equal(head.bias.rows, torch.zeros(2000).double())


def test_rows_that_join_leave_the_others_as_they_are() -> None:
    head = make(3)
    before = head.weight.rows.clone()
    head.append(4, torch.Generator().manual_seed(1), 1.0)
    assert torch.equal(head.weight.rows[:3], before)
    assert head.logits(drawn(2, WIDTH)).shape == (2, 7)


def test_logits_are_those_of_a_linear_layer_with_and_without_leaves() -> None:
    head, features = make(3, 2), drawn(4, WIDTH, seed=1)
    head.bias.rows[:] = drawn(5, seed=2)
    expected = F.linear(features, head.weight.rows, head.bias.rows)
    assert torch.equal(head.logits(features), expected)
    assert torch.equal(head.logits(features, head.trained()), expected)


def test_rows_without_a_gradient_stay_to_the_bit() -> None:
    head, adam = make(3, 2), Adam()
    before = head.weight.rows.clone()
    for step in range(3):
        parts = head.trained()
        gradients = part_gradients(head.logits(drawn(4, WIDTH, seed=step), parts)[:, 3:].square().sum(), parts)
        adam.begin_step()
        adam.update_all(parts, gradients, 0.1)
    assert torch.equal(head.weight.rows[:3], before[:3])
    assert (head.weight.rows[3:] != before[3:]).all()


def test_a_loaded_head_answers_like_the_one_saved() -> None:
    head, other, features = make(3, 2), make(1), drawn(4, WIDTH, seed=1)
    other.load({name: table.rows.clone() for name, table in head.tables().items()})
    assert torch.equal(other.logits(features), head.logits(features))
