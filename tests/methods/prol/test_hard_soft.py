"""The hard-soft update, against torch's cosine schedule."""

from __future__ import annotations

import warnings

import pytest
import torch

from prol.methods.prol.learner import HardSoft
from prol.state import State


def torch_rates(base: float, eta_min: float, t_max: int, steps: int) -> list[float]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=t_max, eta_min=eta_min)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            rates.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            schedule.step()
    return rates


@pytest.mark.parametrize(("base", "eta_min", "t_max"), [(0.002, 0.0005, 20), (0.01, 0.002, 3), (9.8e-7, 5e-4, 20)])
def test_soft_rates_are_torchs_cosine_annealing_over_several_periods(base: float, eta_min: float, t_max: int) -> None:
    pace, rates = HardSoft(State(), threshold=0.8, t_max=t_max), []
    for _ in range(5 * t_max):
        pace.observe(0.1)
        rates.append(float(pace.rate(base, eta_min)))
        pace.advance()
    assert rates == pytest.approx(torch_rates(base, eta_min, t_max, 5 * t_max), rel=1e-9)


def test_the_rate_is_constant_while_hard() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    for _ in range(50):
        pace.observe(0.8)
        assert pace.rate(0.002, 0.0005) == 0.002
        pace.advance()
    assert not pace.soft


def test_the_switching_step_has_the_full_rate_and_already_advances_the_schedule() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    pace.observe(0.79)
    assert pace.soft
    assert pace.rate(0.002, 0.0005) == 0.002
    pace.advance()
    assert float(pace.rate(0.002, 0.0005)) == pytest.approx(torch_rates(0.002, 0.0005, 20, 2)[1])


def test_soft_is_for_good_until_a_restart() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    pace.observe(0.5)
    pace.advance()
    pace.observe(100.0)
    assert pace.soft
    pace.advance()
    assert pace.soft_steps == 2
    pace.restart()
    assert (pace.soft, pace.soft_steps) == (False, 0)
    assert pace.rate(0.002, 0.0005) == 0.002


def test_steps_taken_while_hard_do_not_count() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    for _ in range(10):
        pace.observe(2.0)
        pace.advance()
    pace.observe(0.1)
    assert pace.rate(0.002, 0.0005) == 0.002


def test_switched_off_it_stays_hard() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20, enabled=False)
    pace.observe(0.0)
    pace.advance()
    assert (pace.soft, float(pace.rate(0.002, 0.0005))) == (False, 0.002)


def test_the_same_floor_lifts_a_rate_that_lies_below_it() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    pace.observe(0.1)
    for _ in range(20):
        pace.advance()
    assert float(pace.rate(0.002 * 0.0005, 0.0005)) == pytest.approx(0.0005)


def test_a_step_that_does_not_count_leaves_it_hard() -> None:
    pace = HardSoft(State(), threshold=0.8, t_max=20)
    pace.observe(torch.tensor(0.1), counts=torch.tensor(False))
    assert not pace.soft
    pace.observe(torch.tensor(0.1), counts=torch.tensor(True))
    assert pace.soft


def test_a_state_is_taken_over() -> None:
    state, other_state = State(), State()
    pace, other = (HardSoft(one, threshold=0.8, t_max=20) for one in (state, other_state))
    pace.observe(0.1)
    pace.advance()
    assert state.saved_values() == {"pace": {"soft": True, "soft_steps": 1}}
    other_state.load({}, state.saved_values(), 0)
    assert (other.soft, other.soft_steps) == (True, 1)
    assert torch.equal(other.rate(0.002, 0.0005), pace.rate(0.002, 0.0005))
