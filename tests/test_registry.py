"""Names of methods, data sets and protocols."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
        "from prol.methods.closed_form.ncm import NCM\n\n\nclass Strange(NCM):\n    name = 'strange'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        assert registry.names("methods")["strange"] == "stranger_methods:Strange"
        assert registry.method("strange").name == "strange"
    finally:
        sys.modules.pop("stranger_methods", None)


BROKEN = {
    "missing": ("", "ModuleNotFoundError: No module named 'stranger_methods'"),
    "of another thing": ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
    "without the name": ("Stranger = 1", "AttributeError: module 'stranger_methods' has no attribute 'Strange'"),
    "that raises": ("raise RuntimeError('no\\nlicence')", "RuntimeError: no licence"),
    "that ends the program": ("raise SystemExit('no licence')", "SystemExit: no licence"),
    "of another kind": ("Strange = 1", "TypeError: stranger_methods:Strange is no"),
}

SOME = ["missing", "that ends the program"]
"""For commands, which say what the registry says."""

MALFORMED = {
    "methods": (
        "from prol.learner import Learner\n\n\nclass Strange(Learner):\n    pass",
        "TypeError: stranger_methods:Strange has no dataclass Options",
    ),
    "methods of no family": (
        "from prol.methods.closed_form.ncm import NCM\n\n\nclass Strange(NCM):\n    family = 7",
        "TypeError: the family of stranger_methods:Strange is no text",
    ),
    "datasets": ("def Strange(data: 'Nothing' = None): ...", "NameError: name 'Nothing' is not defined"),
    "protocols": ("def Strange(labels: 'Nothing'): ...", "NameError: name 'Nothing' is not defined"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_loaded_and_cannot_be_used_is_told_like_what_is_broken(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    source, cause = MALFORMED[case]
    group = case.split()[0]
    verb = "streams" if group == "protocols" else group
    with installed(tmp_path, monkeypatch, source):
        code, out, err = command(verb)
        assert (code, err) == (0, "")
        assert f"{group[:-1]} 'strange' of the package stranger 1.0 cannot be loaded" in out
        assert cause in out
        assert all(name in out for name in registry.names(group))


@contextmanager
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> Iterator[None]:
    """While a package is installed whose one module, if any, is `source`."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    points = [f"[prol.{group}]\nstrange = stranger_methods:Strange\n" for group in ("methods", "datasets", "protocols")]
    (info / "entry_points.txt").write_text("\n".join(points))
    if source:
        (tmp_path / "stranger_methods.py").write_text(source + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("stranger_methods", None)


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package whose names cannot be loaded is installed; gives the cause."""
    source, cause = BROKEN[request.param]
    with installed(tmp_path, monkeypatch, source):
        yield cause


@pytest.mark.parametrize("find", [registry.method, registry.dataset, registry.protocol])
def test_what_a_broken_package_adds_is_refused_with_its_name_and_the_cause(
    find: Callable[[str], object], broken: str
) -> None:
    with pytest.raises(ValueError, match=r"'strange' of the package stranger 1\.0 cannot be loaded") as refusal:
        find("strange")
    assert f"from stranger_methods:Strange ({broken}" in str(refusal.value)
    assert str(refusal.value).endswith("fix or uninstall that package")
    assert refusal.value.__cause__ is not None


@pytest.mark.parametrize("broken", SOME, indirect=True)
@pytest.mark.parametrize(
    ("verb", "group"), [("methods", "methods"), ("datasets", "datasets"), ("streams", "protocols")]
)
def test_a_broken_package_does_not_hide_the_others(verb: str, group: str, broken: str, command: Any) -> None:
    code, out, err = command(verb)
    assert (code, err) == (0, "")
    assert all(name in out for name in registry.names(group))
    [told] = [line for line in out.splitlines() if "strange" in line]
    assert told.startswith(f"{group[:-1]} 'strange' of the package stranger 1.0 cannot be loaded")
    assert broken in told


@pytest.mark.parametrize("broken", SOME, indirect=True)
@pytest.mark.parametrize("arguments", [("methods", "strange"), ("run", "strange", "digits"), ("run", "ncm", "strange")])
def test_a_command_that_names_what_is_broken_ends_in_one_line(
    arguments: tuple[str, ...], broken: str, command: Any
) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert broken in err
    assert err.count("\n") == 1
