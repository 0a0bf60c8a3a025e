"""Names of methods, data sets and protocols."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prol import registry
from prol.learner import Learner


@pytest.mark.parametrize("name", ["prol", "ncm", "head_only"])
def test_a_method_is_found_by_its_own_name(name: str) -> None:
    kind = registry.method(name)
    assert issubclass(kind, Learner)
    assert kind.name == name
    assert kind.family
    assert kind.citation
    assert not kind.keeps_samples


@pytest.mark.parametrize("group", ["methods", "datasets", "protocols"])
def test_every_listed_name_resolves(group: str) -> None:
    find = {"methods": registry.method, "datasets": registry.dataset, "protocols": registry.protocol}[group]
    assert registry.names(group)
    assert all(callable(find(name)) for name in registry.names(group))


def test_a_data_set_found_by_name_opens() -> None:
    assert registry.dataset("digits")().name == "digits"


@pytest.mark.parametrize(
    ("find", "group"),
    [(registry.method, "methods"), (registry.dataset, "datasets"), (registry.protocol, "protocols")],
    ids=["method", "dataset", "protocol"],
)
def test_an_unknown_name_is_refused_with_the_known_ones(find: object, group: str) -> None:
    assert callable(find)
    with pytest.raises(ValueError, match=f"unknown {group[:-1]} 'nonsense'") as refusal:
        find("nonsense")
    assert all(name in str(refusal.value) for name in registry.names(group))
    assert "\n" not in str(refusal.value)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'head_only'"):
        registry.method("head-only")


def test_another_package_adds_a_method_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[prol.methods]\nstrange = stranger_methods:Strange\n")
    (tmp_path / "stranger_methods.py").write_text(
        "from prol.methods.ncm import NCM\n\n\nclass Strange(NCM):\n    name = 'strange'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert registry.names("methods")["strange"] == "stranger_methods:Strange"
        assert registry.method("strange").name == "strange"
    finally:
        sys.modules.pop("stranger_methods", None)
