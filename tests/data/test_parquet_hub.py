"""Parquet files of the hub, from its cache, without network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from small_parquet import write

from prol.data.parquet import parquet

PETS = ["cat", "dog", "emu"]


@pytest.fixture(scope="module")
def offline_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without network says: one data set is in the hub's cache, the other is not."""
    root = tmp_path_factory.mktemp("offline")
    stored = root / "hub" / "datasets--someone--pets"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("0123abc")
    write(stored / "snapshots" / "0123abc" / "data" / "train-00000-of-00001.parquet", [0, 1, 2], names=PETS)
    write(stored / "snapshots" / "0123abc" / "data" / "test-00000-of-00001.parquet", [2], names=PETS)
    code = """
import json
from prol.data.parquet import parquet
data = parquet("hub:someone/pets")
try:
    parquet("hub:someone/plants")
except ValueError as error:
    absent = str(error)
shape = data.test.load([0]).images[0].shape
print(json.dumps(dict(names=data.class_names, sizes=[len(data.train.labels), len(data.test.labels)], absent=absent)))
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PROL_"))}
    clean |= {"HF_HUB_CACHE": str(root / "hub"), "HOME": str(root), "PROL_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers | {"cache": str(root / "hub"), "stderr": done.stderr}


def test_a_data_set_in_the_hubs_cache_opens_without_network(offline_answers: dict[str, Any]) -> None:
    assert offline_answers["names"] == PETS
    assert offline_answers["sizes"] == [3, 1]
    assert offline_answers["stderr"] == ""


def test_without_network_and_cache_one_line_says_what_to_put_where(offline_answers: dict[str, Any]) -> None:
    message = offline_answers["absent"]
    assert "\n" not in message
    for word in ("'someone/plants'", offline_answers["cache"], "huggingface.co/datasets/someone/plants", "--data"):
        assert word in message


@pytest.mark.parametrize("name", ["hub:", "hub:pets", "hub:a/b/c", "hub:/pets"])
def test_a_name_that_is_none_of_the_hub_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a data set of the hub: write hub:OWNER/NAME"):
        parquet(name)
