"""Running statistics that a bad step must not have moved."""

from __future__ import annotations

import torch
from prol.methods.replay.running_statistics import keep_if, noted
from torch import Tensor, nn


def some() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        "mean": torch.randn(4, generator=random),
        "table": torch.randn(2, 3, generator=random),
        "number": torch.randn((), generator=random),
    }


def test_what_is_noted_is_a_copy_of_all() -> None:
    running = some()
    before = noted(running)
    assert before.tolist() == [
        *running["mean"].tolist(),
        *running["table"].flatten().tolist(),
        float(running["number"]),
    ]
    running["mean"].zero_()
    assert before[0] != 0


def test_a_valid_step_keeps_what_it_made() -> None:
    running = some()
    before = noted(running)
    for tensor in running.values():
        tensor += 1
    moved = {name: tensor.clone() for name, tensor in running.items()}
    keep_if(torch.tensor(True), running, before)
    assert all(torch.equal(tensor, moved[name]) for name, tensor in running.items())


def test_a_bad_step_is_taken_back_to_the_bit_in_place_even_from_nan() -> None:
    running = some()
    places = [tensor.data_ptr() for tensor in running.values()]
    before = noted(running)
    for tensor in running.values():
        tensor.fill_(torch.nan)
    keep_if(torch.tensor(False), running, before)
    assert all(torch.equal(tensor, some()[name]) for name, tensor in running.items())
    assert [tensor.data_ptr() for tensor in running.values()] == places


def test_norms_of_torch_go_back_and_on() -> None:
    norm = nn.BatchNorm1d(3)
    running = {"mean": norm.running_mean, "variance": norm.running_var}
    batch = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    norm(batch)
    once = noted(running)
    norm(torch.full((8, 3), torch.inf))
    keep_if(torch.tensor(False), running, once)
    assert torch.equal(noted(running), once)
    norm(batch)
    twin = nn.BatchNorm1d(3)
    twin(batch), twin(batch)
    assert torch.equal(noted(running), noted({"mean": twin.running_mean, "variance": twin.running_var}))
