"""How PROL's options resolve: data set, preset, ablation row, then what was given."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from prol.methods.prol.learner import PROL
from prol.methods.prol.options import ABLATIONS, COEFFICIENTS, PRESETS, PROLOptions, read_prol_options


def read(**values: Any) -> PROLOptions:
    return read_prol_options(values)


def test_the_defaults_are_the_paper_preset_with_imagenet_rs_coefficients() -> None:
    o = read()
    assert o == PROLOptions()
    assert (o.preset, o.coefficients) == ("paper", "imagenet_r")
    assert (o.intra, o.inter, o.sim, o.ort, o.gen) == (1.0, 0.03, 1.0, 1.0, 0.1)
    assert (o.lr, o.chunk, o.lr_scaling, o.clip) == (0.05, 10, True, None)
    assert (o.hsu, o.threshold, o.t_max, o.eta_min, o.norm_eta_min) == (True, 0.8, 20, 0.0005, "absolute")
    assert (o.length, o.blocks, o.eps_a, o.eps_b) == (5, 5, 0.001, 0.0001)
    assert o.norm_lr_factor == 0.0005
    assert o.generator
    assert o.scalers
    assert o.keys
    assert o.tune_norms
    assert o.generator_bias
    assert o.layer_sum
    assert (o.query, o.prompt_selection, o.similarity_factor) == ("class_feature", "nearest", "per_sample")
    assert (o.train_rows, o.head, o.thaw_heads) == ("global", "per_task", False)
    assert (o.ort_raw, o.ort_detach_old, o.gen_raw, o.gen_off_diagonal) == (False, False, False, True)
    assert (o.task_min_classes, o.task_min_steps) == (2, 50)


@pytest.mark.parametrize(
    ("data", "inter", "threshold", "lr", "clip", "blocks"),
    [
        ("cifar100", 0.001, 0.3, 0.01, 1.0, 7),
        ("imagenet_r", 0.03, 0.8, 0.05, None, 5),
        ("imagenet_a", 0.03, 0.8, 0.05, None, 5),
        ("cub200", 0.01, 0.3, 0.05, 1.0, 7),
        ("my own folder", 0.03, 0.8, 0.05, None, 5),
    ],
)
def test_coefficients_follow_the_data_set(
    data: str, inter: float, threshold: float, lr: float, clip: float | None, blocks: int
) -> None:
    o = read(coefficients=data)
    assert (o.inter, o.threshold, o.lr, o.clip, o.blocks) == (inter, threshold, lr, clip, blocks)


def test_the_paper_has_coefficients_for_four_data_sets() -> None:
    assert set(COEFFICIENTS) == {"cifar100", "imagenet_r", "imagenet_a", "cub200"}


@pytest.mark.parametrize(
    ("data", "effective"), [("cifar100", 0.000390625), ("imagenet_r", 0.001953125), ("cub200", 0.001953125)]
)
def test_effective_rates_are_those_of_the_table(data: str, effective: float) -> None:
    o = read(coefficients=data)
    assert o.lr * o.chunk / 256 == effective


def test_released_has_the_faults_and_the_published_input() -> None:
    o = read(preset="released")
    assert (o.similarity_factor, o.train_rows, o.gen_off_diagonal) == ("released", "local", False)
    assert (o.norm_eta_min, o.input_range, o.crop_pct) == ("absolute", "unit", 0.875)
    assert o.tune_norms
    assert o.layer_sum
    assert o.generator_bias
    assert o.head == "per_task"
    assert o.eta_min == 0.0005


def test_literal_is_the_text_to_the_letter() -> None:
    o = read(preset="literal")
    assert not o.tune_norms
    assert o.ort_raw
    assert o.gen_raw
    assert not o.generator_bias
    assert not o.layer_sum
    assert o.eta_min == 0.005
    assert o.head == "growing"
    assert (o.similarity_factor, o.gen_off_diagonal) == ("per_sample", True)


def test_there_are_three_presets() -> None:
    assert set(PRESETS) == {"paper", "released", "literal"}


PAPER_ROWS = {
    # inter only, inter + intra, + generator, + scalers and keys with L_sim, + L_ort, + HSU, + L_gen
    "ft_inter": (False, False, False, False, False, False),
    "ft_inter_intra": (True, False, False, False, False, False),
    "generator": (True, True, False, False, False, False),
    "keys": (True, True, True, False, False, False),
    "orthogonality": (True, True, True, True, False, False),
    "hard_soft": (True, True, True, True, True, False),
    "full": (True, True, True, True, True, True),
}


@pytest.mark.parametrize("row", PAPER_ROWS)
def test_each_ablation_row_adds_its_component(row: Any) -> None:
    o = read(ablation=row)
    scalers_keys_sim = {o.scalers, o.keys, o.sim == 1.0}
    assert len(scalers_keys_sim) == 1
    found = (o.intra == 1.0, o.generator, scalers_keys_sim.pop(), o.ort == 1.0, o.hsu, o.gen == 0.1)
    assert found == PAPER_ROWS[row]
    assert o.inter > 0


def test_the_papers_seven_rows_come_first_and_the_rows_it_lacks_are_there() -> None:
    assert list(ABLATIONS)[:7] == list(PAPER_ROWS)
    assert not read(ablation="norms_only").generator
    assert read(ablation="norms_only").tune_norms
    assert read(ablation="null_prefix").similarity_factor == "zero"
    without_norms = read(ablation="generator_without_norms")
    assert without_norms.generator
    assert not without_norms.tune_norms


def test_the_full_row_is_the_method_itself() -> None:
    full = asdict(read(ablation="full")) | {"ablation": None}
    assert full == asdict(read())


def test_what_is_given_wins_over_ablation_preset_and_data() -> None:
    o = read(coefficients="cifar100", preset="literal", ablation="keys", blocks=3, eta_min=0.1, hsu=True, ort="0.5")
    assert (o.blocks, o.eta_min, o.hsu, o.ort) == (3, 0.1, True, 0.5)
    assert (o.threshold, o.tune_norms, o.gen) == (0.3, False, 0.0)
    assert read(coefficients="cifar100", clip=None).clip is None
    assert read(coefficients="cifar100", clip="none").clip is None


def test_a_value_equal_to_the_default_still_counts_as_given() -> None:
    assert read(coefficients="cifar100", blocks=5).blocks == 5
    assert read(preset="literal", tune_norms=True).tune_norms
    assert read(preset="released", similarity_factor="per_sample").similarity_factor == "per_sample"


@pytest.mark.parametrize("row", ["ft_inter", "generator", "null_prefix"])
def test_a_row_without_keys_takes_keys_off_given_once_more(row: Any) -> None:
    assert not read(ablation=row, keys=False).keys


def test_texts_resolve_as_values_do() -> None:
    values: dict[str, Any] = {"lr": 0.1, "blocks": 3, "hsu": False, "clip": 2.0, "head": "growing", "ablation": "keys"}
    assert PROL.read_options({name: str(value) for name, value in values.items()}) == PROL.read_options(values)


def test_resolved_options_resolve_to_themselves() -> None:
    for values in ({"coefficients": "cifar100"}, {"preset": "released"}, {"preset": "literal", "ablation": "keys"}):
        resolved = read(**values)
        assert read(**asdict(resolved)) == resolved


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"keys": False}, "scalers"),
        ({"chunk": 0}, "chunk.*from 1 to 10000"),
        ({"length": 0}, "length.*at least 1"),
        ({"blocks": 0}, "blocks.*at least 1"),
        ({"t_max": 0}, "t_max.*at least 1"),
        ({"lr": -1}, "lr.*at least 0"),
        ({"lr": "inf"}, "lr"),
        ({"eps_a": -0.1}, "eps_a"),
        ({"clip": 0}, "clip.*or none"),
        ({"preset": "papier"}, "paper, released, literal"),
        ({"ablation": "nothing"}, "ft_inter"),
        ({"query": "pixels"}, "class_feature, class_token, patch_embedding"),
        ({"prompt_selection": "random"}, "nearest, label"),
        ({"similarity_factor": "two"}, "per_sample, released, one"),
        ({"tune_norm": True}, "did you mean 'tune_norms'"),
    ],
    ids=str,
)
def test_impossible_options_are_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        read(**values)
    assert "\n" not in str(refusal.value)
