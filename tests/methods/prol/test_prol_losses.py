"""PROL's five losses against the golden ones and their definitions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golden_files import golden
from prol.engine.losses import inter_task, intra_task
from prol.engine.similarity import cosine_pairs, cosine_to_all, unit
from prol.methods.prol import losses

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=["float64", "float32"]
)


def recorded(dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in golden("losses").items()}


def terms(file: dict[str, Tensor]) -> dict[str, Tensor]:
    """Every term of the recorded batch, by the shipped functions."""
    first = int(file["known_classes"])
    plain, prompted, keys = file["ptm_feature"], file["prompted_feature"], file["keys"]
    old = cosine_to_all(plain, keys[:first]).argmax(1)
    diagonal = losses.generalisation(plain, prompted, off_diagonal=False)
    raw_diagonal = losses.generalisation(plain, prompted, raw=True, off_diagonal=False)
    return {
        "L_inter": inter_task(file["logits"], file["labels"]),
        "L_intra": intra_task(file["logits"], file["labels"], torch.arange(file["logits"].shape[1]) >= first),
        "L_sim": -cosine_pairs(plain, keys[file["labels"]]).mean(),
        "ort_old_class": old,
        "L_ort": losses.orthogonality(keys[file["labels"]], keys[old]),
        "L_gen_diag": diagonal,
        "L_gen_offdiag": losses.generalisation(plain, prompted) - diagonal,
        "L_gen_diag_rawfeat": raw_diagonal,
        "L_gen_offdiag_rawfeat": losses.generalisation(plain, prompted, raw=True) - raw_diagonal,
    }


@DTYPES
@pytest.mark.parametrize(
    "name",
    [
        "L_inter",
        "L_intra",
        "L_sim",
        "ort_old_class",
        "L_ort",
        "L_gen_diag",
        "L_gen_offdiag",
        "L_gen_diag_rawfeat",
        "L_gen_offdiag_rawfeat",
    ],
)
def test_each_term_is_the_golden_one(name: str, dtype: torch.dtype, tolerance: float) -> None:
    file = recorded(dtype)
    torch.testing.assert_close(terms(file)[name].double(), golden("losses")[name].double(), rtol=0, atol=tolerance)


@DTYPES
def test_the_totals_are_the_golden_ones(dtype: torch.dtype, tolerance: float) -> None:
    file = recorded(dtype)
    t = terms(file)
    released = 0.03 * t["L_inter"] + t["L_intra"] + t["L_sim"] + t["L_ort"] + 0.1 * t["L_gen_diag"]
    both = released + 0.1 * t["L_gen_offdiag"]
    torch.testing.assert_close(released.double(), golden("losses")["total_released"], rtol=0, atol=tolerance)
    torch.testing.assert_close(both.double(), golden("losses")["total_both_terms"], rtol=0, atol=tolerance)


def test_the_golden_matrix_gives_the_same_generalisation_loss() -> None:
    file = recorded(torch.float64)
    matrix = file["M"]
    u, v = unit(file["ptm_feature"]), unit(file["prompted_feature"])
    torch.testing.assert_close(u.T @ v / 6, matrix, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        losses.generalisation(file["ptm_feature"], file["prompted_feature"]),
        definition(matrix, off_diagonal=True),
        rtol=0,
        atol=1e-9,
    )


def definition(matrix: Tensor, off_diagonal: bool) -> Tensor:
    width = len(matrix)
    loss = (1 - matrix.diagonal()).square().sum() / width
    if off_diagonal:
        rest = matrix - torch.diag(matrix.diagonal())
        loss = loss + rest.square().sum() / (width * (width - 1))
    return loss


@given(
    batch=st.integers(1, 7),
    width=st.integers(2, 12),
    seed=st.integers(0, 999),
    raw=st.booleans(),
    off_diagonal=st.booleans(),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_gram_form_equals_the_definition_with_the_whole_matrix(
    batch: int, width: int, seed: int, raw: bool, off_diagonal: bool
) -> None:
    random = torch.Generator().manual_seed(seed)
    plain = torch.randn(batch, width, generator=random, dtype=torch.float64)
    prompted = torch.randn(batch, width, generator=random, dtype=torch.float64).requires_grad_()
    u, v = (plain, prompted) if raw else (unit(plain), unit(prompted))
    expected = definition(u.T @ v / batch, off_diagonal)
    found = losses.generalisation(plain, prompted, raw, off_diagonal)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    (of_found,), (of_expected,) = (torch.autograd.grad(value, [prompted]) for value in (found, expected))
    torch.testing.assert_close(of_found, of_expected, rtol=1e-9, atol=1e-12)


def test_orthogonality_is_signed_and_moves_both_keys() -> None:
    keys, old = torch.eye(2, 4).double().requires_grad_(), -torch.eye(2, 4).double()
    old.requires_grad_()
    value = losses.orthogonality(keys, old)
    assert value.item() == pytest.approx(-1)
    raw = losses.orthogonality(3 * keys, old, raw=True)
    assert raw.item() == pytest.approx(-3)
    gradients = torch.autograd.grad(raw, [keys, old])
    assert all(gradient.abs().max() > 0 for gradient in gradients)


@given(counts=st.lists(st.booleans(), min_size=5, max_size=5), seed=st.integers(0, 99), raw=st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_mask_equals_a_selection(counts: list[bool], seed: int, raw: bool) -> None:
    """Of values and gradients; where no sample counts, both are zero."""
    random, mask = torch.Generator().manual_seed(seed), torch.tensor(counts)
    a, b = (torch.randn(5, 6, generator=random, dtype=torch.float64).requires_grad_() for _ in range(2))
    columns, own = torch.where(mask, 4, 1), torch.arange(6) >= 3
    pairs = [
        (intra_task(a, columns, own, mask), lambda: intra_task(a[mask], columns[mask], own)),
        (losses.orthogonality(a, b, raw, mask), lambda: losses.orthogonality(a[mask], b[mask], raw)),
        (losses.generalisation(a, b, raw, counts=mask), lambda: losses.generalisation(a[mask], b[mask], raw)),
    ]
    for masked, selected in pairs:
        expected = selected() if mask.any() else (a + b).sum() * 0
        torch.testing.assert_close(masked, expected, rtol=1e-9, atol=1e-12)
        for found, wanted in zip(
            torch.autograd.grad(masked, [a, b], retain_graph=True, allow_unused=True),
            torch.autograd.grad(expected, [a, b], retain_graph=True, allow_unused=True),
            strict=True,
        ):
            nothing = torch.zeros_like(a)
            torch.testing.assert_close(
                nothing if found is None else found, nothing if wanted is None else wanted, rtol=1e-9, atol=1e-12
            )
