"""What importing prol costs, and what it offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prol


def test_importing_prol_loads_nothing_heavy() -> None:
    script = (
        "import sys, prol; heavy = {'torch', 'timm', 'torchvision', 'matplotlib', 'typer'} & sys.modules.keys(); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.slow
def test_creating_a_learner_loads_no_plots_and_no_command_line() -> None:
    script = (
        "import sys, prol; prol.create('ncm', device='cpu'); "
        "heavy = {'matplotlib', 'typer'} & sys.modules.keys(); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_every_public_name_is_there() -> None:
    assert set(prol.__all__) == {
        "Footprint",
        "Learner",
        "__version__",
        "check_learner",
        "compare",
        "create",
        "list_datasets",
        "list_methods",
        "load",
        "merge",
        "run",
        "save",
        "stream",
    }
    assert dir(prol) == sorted(prol.__all__)
    assert all(getattr(prol, name) is not None for name in prol.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(prol, "no_such_name")
