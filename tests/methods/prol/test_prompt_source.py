"""PROL's prompts against the golden ones, through the shipped source, and against their definitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golden_files import golden
from prol.engine.similarity import cosine_pairs, cosine_to_all
from prol.methods.prol.losses import orthogonality
from prol.methods.prol.prompt_source import (
    Chosen,
    Factor,
    Generator,
    PromptShape,
    PromptSource,
    assemble,
    generate,
    generator_input,
    make_prefixes,
    nearest_key,
    nearest_keys_by_task,
    shared_first_hit_factor,
    sum_with_previous_block,
)
from prol.state import State

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def make(
    factor: Factor = "per_sample", layer_sum: bool = False, dtype: torch.dtype = torch.float64, bias: bool = True
) -> PromptSource:
    """A source with the recorded tables of the eight classes met so far."""
    recorded = golden("prompt_generation")
    shape = PromptShape(
        width=64,
        heads=4,
        blocks=3,
        length=5,
        generator=True,
        keys=True,
        scalers=True,
        bias=bias,
        layer_sum=layer_sum,
        factor=factor,
        detach_factor=False,
    )
    state = State()
    source = PromptSource(state, shape, torch.Generator(), dtype)
    tables = {
        "generator.weight": recorded["gen_weight"],
        "generator.bias": recorded["gen_bias"][: 3 * bias],
        "keys": recorded["keys"][:8],
        "scaler": recorded["scaler"].transpose(0, 1)[:8],
        "shifter": recorded["shifter"].transpose(0, 1)[:8],
    }
    state.load({f"source/{name}": tensor for name, tensor in tables.items()}, {}, 8)
    return source


def choose(source: PromptSource, rows: Tensor, table_rows: Tensor | None = None) -> Chosen:
    table_rows = rows if table_rows is None else table_rows
    return Chosen(rows, source.keys.rows[rows], source.scaler.rows[table_rows], source.shifter.rows[table_rows])


def stacked(prefixes: dict[int, tuple[Tensor, Tensor]]) -> Tensor:
    """`[sample, block, K/V, head, position, d]`, as recorded."""
    return torch.stack([torch.stack(prefixes[i], dim=1) for i in range(len(prefixes))], dim=1)


def features(dtype: torch.dtype = torch.float64) -> Tensor:
    return golden("prompt_generation")["features"].to(dtype)


def close(value: Tensor, name: str, dtype: torch.dtype) -> None:
    tolerance = {torch.float64: 1e-6, torch.float32: 1e-5}[dtype]
    torch.testing.assert_close(
        value.double(), golden("prompt_generation")[name].double(), rtol=0, atol=tolerance, msg=lambda m: f"{name}: {m}"
    )


def by_task(source: PromptSource, query: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest keys of the second task, classes 4 to 7, and of the first."""
    current = torch.ones(len(query), dtype=torch.bool)
    return nearest_keys_by_task(query, source.key_table(), torch.tensor(4), current)


def test_samples_of_older_classes_may_take_any_key() -> None:
    source, query = make(), features()
    any_key = nearest_key(query, source.key_table())
    near, old = nearest_keys_by_task(query, source.key_table(), torch.tensor(4), torch.zeros(len(query)).bool())
    assert torch.equal(near, any_key)
    assert (any_key < 4).any()
    assert (old < 4).all()


@DTYPES
def test_intended_prompts_at_test_are_the_golden_ones(dtype: torch.dtype) -> None:
    recorded, source, query = golden("prompt_generation"), make(dtype=dtype), features(dtype)
    rows = nearest_key(query, source.key_table())
    assert torch.equal(rows, recorded["intended.eval.class"])
    torch.testing.assert_close(
        cosine_to_all(query, source.keys.rows).double(), recorded["eval.cosine"], rtol=0, atol=1e-6
    )
    torch.testing.assert_close(
        cosine_pairs(query, source.keys.rows[rows]).double(), recorded["intended.eval.s"], rtol=0, atol=1e-6
    )
    own = stacked(make_prefixes(source.shape, query, choose(source, rows), source.generator))
    close(own, "intended.eval.P", dtype)
    summed = make(layer_sum=True, dtype=dtype)
    inserted = stacked(make_prefixes(summed.shape, query, choose(summed, rows), summed.generator))
    close(inserted, "intended.eval.inserted", dtype)


def test_cosines_agree_with_the_golden_ones_to_nine_digits() -> None:
    recorded, source = golden("prompt_generation"), make()
    torch.testing.assert_close(cosine_to_all(features(), source.keys.rows), recorded["eval.cosine"], rtol=0, atol=1e-9)
    rows = nearest_key(features(), source.key_table())
    torch.testing.assert_close(
        cosine_pairs(features(), source.keys.rows[rows]), recorded["intended.eval.s"], rtol=0, atol=1e-9
    )
    in_training = recorded["train_task2.rows"]
    torch.testing.assert_close(
        cosine_to_all(features()[in_training], source.keys.rows[4:]), recorded["train_task2.cosine"], rtol=0, atol=1e-9
    )


@DTYPES
def test_intended_prompts_in_training_are_the_golden_ones(dtype: torch.dtype) -> None:
    recorded, source = golden("prompt_generation"), make(dtype=dtype)
    query = features(dtype)[recorded["train_task2.rows"]]
    rows = by_task(source, query)[0]
    assert torch.equal(rows, recorded["intended.train_task2.class"])
    own = stacked(make_prefixes(source.shape, query, choose(source, rows), source.generator, first_candidate=4))
    close(own, "intended.train_task2.P", dtype)
    close(cosine_pairs(query, source.keys.rows[rows]), "intended.train_task2.s", dtype)


@DTYPES
def test_released_prompts_at_test_are_the_golden_ones(dtype: torch.dtype) -> None:
    source, query = make("released", dtype=dtype), features(dtype)
    rows = nearest_key(query, source.key_table())
    close(stacked(make_prefixes(source.shape, query, choose(source, rows), source.generator)), "released.eval.P", dtype)


@DTYPES
def test_released_prompts_collapse_to_the_shifters_when_no_sample_is_nearest_to_class_0(dtype: torch.dtype) -> None:
    source = make("released", dtype=dtype)
    query = features(dtype)[golden("prompt_generation")["released.eval_no_class0.rows"]]
    rows = nearest_key(query, source.key_table())
    assert 0 not in rows
    prompts = stacked(make_prefixes(source.shape, query, choose(source, rows), source.generator))
    close(prompts, "released.eval_no_class0.P", dtype)
    assert torch.equal(prompts[..., 0, :], torch.zeros_like(prompts[..., 0, :]))
    shifters = source.shifter.rows[rows][:, None, :, None, 1:, None]
    assert torch.equal(prompts[..., 1:, :], shifters.expand_as(prompts[..., 1:, :]))


@DTYPES
def test_released_prompts_in_training_take_the_rows_of_the_first_task(dtype: torch.dtype) -> None:
    source = make("released", dtype=dtype)
    query = features(dtype)[golden("prompt_generation")["train_task2.rows"]]
    rows = by_task(source, query)[0]
    chosen = choose(source, rows, table_rows=rows - 4)
    prompts = stacked(make_prefixes(source.shape, query, chosen, source.generator, first_candidate=4))
    close(prompts, "released.train_task2.P", dtype)


def test_similarity_and_orthogonality_of_that_batch_are_the_golden_ones() -> None:
    recorded, source = golden("prompt_generation"), make()
    query = features()[recorded["train_task2.rows"]]
    labels = recorded["labels"][recorded["train_task2.rows"]]
    similarity = cosine_pairs(query, source.keys.rows[labels]).mean()
    torch.testing.assert_close(similarity, recorded["train_task2.sim_mean_cos"], rtol=0, atol=1e-9)
    old = by_task(source, query)[1]
    value = orthogonality(source.keys.rows[labels], source.keys.rows[old])
    torch.testing.assert_close(value, recorded["train_task2.L_ort"], rtol=0, atol=1e-9)


# Switches


def test_a_factor_of_one_leaves_the_generated_values_and_zero_leaves_the_shifters() -> None:
    query = features()
    one, zero, plain = make("one"), make("zero"), make()
    rows = nearest_key(query, plain.key_table())
    strength = cosine_pairs(query, plain.keys.rows[rows]).view(-1, 1, 1, 1, 1)
    of_one = stacked(make_prefixes(one.shape, query, choose(one, rows), one.generator))
    of_plain = stacked(make_prefixes(plain.shape, query, choose(plain, rows), plain.generator))
    torch.testing.assert_close(of_one[..., 0, :] * strength, of_plain[..., 0, :], rtol=0, atol=1e-12)
    of_zero = stacked(make_prefixes(zero.shape, query, choose(zero, rows), zero.generator))
    assert torch.equal(of_zero[..., 0, :], torch.zeros_like(of_zero[..., 0, :]))
    torch.testing.assert_close(of_zero[:, 0, 0, 0, 1:, 0], zero.shifter.rows[rows][:, 0, 1:], rtol=0, atol=0)


def test_without_keys_every_position_is_the_generated_value() -> None:
    source, query = make(), features()
    prompts = stacked(make_prefixes(source.shape, query, None, source.generator))
    assert torch.equal(prompts, prompts[..., :1, :].expand_as(prompts))
    of_one = make("one")
    rows = nearest_key(query, of_one.key_table())
    expected = stacked(make_prefixes(of_one.shape, query, choose(of_one, rows), of_one.generator))[..., 0, :]
    torch.testing.assert_close(prompts[..., 0, :], expected, rtol=0, atol=0)


def test_without_a_bias_the_generator_is_linear() -> None:
    source, query = make("one", bias=False), features()
    once, twice = (stacked(make_prefixes(source.shape, q, None, source.generator)) for q in (query, 2 * query))
    torch.testing.assert_close(twice, 2 * once, rtol=0, atol=1e-12)
    biased = make("one")
    assert not torch.allclose(once, stacked(make_prefixes(biased.shape, query, None, biased.generator)))


@pytest.mark.parametrize("detach", [False, True])
def test_the_factor_moves_keys_unless_it_is_detached(detach: bool) -> None:
    source, query = make(), features()
    source.shape = replace(source.shape, detach_factor=detach)
    rows = nearest_key(query, source.key_table())
    keys = source.keys.rows[rows].requires_grad_()
    weight = source.generator.weight.clone().requires_grad_()
    chosen = Chosen(rows, keys, source.scaler.rows[rows], source.shifter.rows[rows])
    prompts = stacked(make_prefixes(source.shape, query, chosen, Generator(weight, source.generator.bias)))
    of_keys, of_weight = torch.autograd.grad(prompts.sum(), [keys, weight], allow_unused=True)
    assert (of_keys is None) == detach
    assert of_weight.abs().max() > 0


# Initial values


def test_new_classes_have_random_keys_scalers_one_and_shifters_zero() -> None:
    state = State()
    source = PromptSource(state, make().shape, torch.Generator().manual_seed(0), torch.float64)
    state.add_classes(40)
    keys = source.keys.rows
    assert keys.shape == (40, 64)
    assert -1 <= keys.min() < -0.99
    assert 0.99 < keys.max() <= 1
    assert abs(keys.mean()) < 0.05
    assert torch.equal(source.scaler.rows, torch.ones(40, 2, 5).double())
    assert torch.equal(source.shifter.rows, torch.zeros(40, 2, 5).double())
    bound = 3**-0.5
    for tensor, size in ((source.generator.weight, (3, 2, 4, 3)), (source.generator.bias, (3, 2, 4))):
        assert tensor.shape == size
        assert 0.8 * bound < tensor.abs().max() <= bound


def test_ties_between_keys_take_the_lowest_row() -> None:
    source, query = make(), features()
    source.keys.rows[5] = source.keys.rows[0]
    source.keys.rows[7] = source.keys.rows[2]
    source.renew_lengths()
    found = nearest_key(source.keys.rows[[7, 5, 2]].clone(), source.key_table())
    assert found.tolist() == [2, 0, 2]
    assert nearest_key(query, source.key_table()).shape == (7,)


def test_the_nearest_key_stays_right_when_classes_come_and_go() -> None:
    """Lengths of keys are stored beside them: they follow growth, a rollback and a load."""
    state = State()
    source = PromptSource(state, make().shape, torch.Generator().manual_seed(0), torch.float64)

    def check(count: int) -> None:
        keys = source.keys.rows
        assert nearest_key(7 * keys, source.key_table()).tolist() == list(range(count))
        torch.testing.assert_close(source.key_table().inverse_lengths[:count], 1 / keys.norm(dim=1, keepdim=True))

    state.add_classes(3)
    check(3)
    record, layout = state.record(), source.layout()
    state.add_classes(4)
    check(7)
    state.roll_back(record)
    check(3)
    by_class = [entry.name for entry in state.entries() if entry.every_class]
    last = {name: state.snapshot()[0][name][1:] for name in by_class}
    state.load({**state.snapshot()[0], **last, "source/keys": 5 * source.keys.rows[1:].clone()}, {}, 2)
    check(2)
    assert source.layout() == layout


# Definitions


shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(shape=shapes, seed=st.integers(0, 99), biased=st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_one_convolution_equals_explicit_loops_with_zero_padding(
    shape: tuple[int, int, int, int], seed: int, biased: bool
) -> None:
    batch, blocks, heads, d = shape
    inputs, weight = drawn(seed, batch, d), drawn(seed + 1, blocks, 2, heads, 3)
    bias = drawn(seed + 2, blocks, 2, heads) if biased else None
    expected = torch.zeros(batch, blocks, 2, heads, d, dtype=torch.float64)
    for index in torch.cartesian_prod(*(torch.arange(n) for n in expected.shape)).tolist():
        b, block, kind, head, j = index
        for tap in range(3):
            source = j + tap - 1
            if 0 <= source < d:
                expected[tuple(index)] += weight[block, kind, head, tap] * inputs[b, source]
        if bias is not None:
            expected[tuple(index)] += bias[block, kind, head]
    torch.testing.assert_close(generate(inputs, weight, bias), expected, rtol=0, atol=1e-12)


def test_the_generators_input_is_every_hth_coordinate_from_the_first() -> None:
    query = torch.arange(24.0).view(2, 12)
    assert generator_input(query, 4).tolist() == [[0, 4, 8], [12, 16, 20]]


@given(shape=shapes, length=st.integers(1, 6), seed=st.integers(0, 99), biased=st.booleans())
@settings(max_examples=30, deadline=None, derandomize=True)
def test_folding_the_layer_sum_into_the_generator_equals_summing_own_prompts(
    shape: tuple[int, int, int, int], length: int, seed: int, biased: bool
) -> None:
    batch, blocks, heads, d = shape
    inputs, factor = drawn(seed, batch, d), drawn(seed + 1, batch)
    weight = drawn(seed + 2, blocks, 2, heads, 3)
    bias = drawn(seed + 3, blocks, 2, heads) if biased else None
    scaler, shifter = drawn(seed + 4, batch, 2, length), drawn(seed + 5, batch, 2, length)
    own = assemble(generate(inputs, weight, bias), factor, scaler, shifter, length, layer_sum=False)
    summed = own.clone()
    summed[:, 1:] += own[:, :-1]
    folded = sum_with_previous_block(weight, bias)
    inserted = assemble(generate(inputs, *folded), factor, scaler, shifter, length, layer_sum=True)
    torch.testing.assert_close(inserted, summed, rtol=0, atol=1e-12)


def test_positions_are_u_and_then_scaled_and_shifted_u() -> None:
    generated, factor = drawn(0, 2, 1, 2, 3, 4), torch.tensor([2.0, -0.5], dtype=torch.float64)
    scaler, shifter = drawn(1, 2, 2, 3), drawn(2, 2, 2, 3)
    made = assemble(generated, factor, scaler, shifter, 3, layer_sum=False)
    assert made.shape == (2, 1, 2, 3, 3, 4)
    for sample in range(2):
        for kind in range(2):
            u = factor[sample] * generated[sample, 0, kind]
            torch.testing.assert_close(made[sample, 0, kind, :, 0], u)
            for position in (1, 2):
                expected = scaler[sample, kind, position] * u + shifter[sample, kind, position]
                torch.testing.assert_close(made[sample, 0, kind, :, position], expected)


def test_the_first_column_of_scalers_and_shifters_is_not_used() -> None:
    generated, factor = drawn(0, 2, 3, 2, 3, 4), drawn(1, 2)
    scaler, shifter = drawn(2, 2, 2, 3).requires_grad_(), drawn(3, 2, 2, 3).requires_grad_()
    made = assemble(generated, factor, scaler, shifter, 3, layer_sum=True)
    of_scaler, of_shifter = torch.autograd.grad((made**2).sum(), [scaler, shifter])
    for gradient in (of_scaler, of_shifter):
        assert torch.equal(gradient[..., 0], torch.zeros(2, 2).double())
        assert gradient[..., 1:].abs().min() > 0


def test_the_shared_factor_is_the_last_hits_cosine_for_every_sample() -> None:
    cosine = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    hits = torch.tensor([True, False, True, False])
    torch.testing.assert_close(shared_first_hit_factor(cosine, hits), torch.full((4,), 0.3).double())


def test_without_a_hit_the_shared_factor_is_zero() -> None:
    assert torch.equal(shared_first_hit_factor(drawn(3, 3), torch.zeros(3, dtype=torch.bool)), torch.zeros(3).double())


def test_every_hit_receives_the_whole_gradient_of_the_shared_factor() -> None:
    cosine = drawn(4, 4).requires_grad_()
    hits = torch.tensor([True, False, True, False])
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((shared_first_hit_factor(cosine, hits) * weights).sum(), [cosine])
    assert gradient.tolist() == [10, 0, 10, 0]
