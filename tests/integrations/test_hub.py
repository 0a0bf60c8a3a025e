"""Saved learners to a hub and back, against a server on this machine that answers as a hub does."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from small_learners import small_vit, taught
from stand_in_hub import Repository, StandInHub, reached

import prol
from prol.integrations.hub import FILES, HubError, pull, push
from prol.testing.stream import make_images

NAME = "ann/pets"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInHub]:
    with reached(monkeypatch, tmp_path) as server:
        yield server


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    taught("ncm").save(tmp_path / "saved")
    return tmp_path / "saved"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def files_of(hub: StandInHub, branch: str = "main") -> dict[str, bytes]:
    repository = hub.repositories[NAME]
    return repository.commits[repository.branches[branch]]


def refusal(*arguments: Any, verb: Any = pull, **options: Any) -> str:
    with pytest.raises((ValueError, OSError)) as raised:
        verb(*arguments, **options)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_what_is_pushed_comes_back_bit_for_bit_and_predicts_the_same(
    hub: StandInHub, saved: Path, tmp_path: Path
) -> None:
    sent = push(saved, NAME)
    assert files_of(hub) == contents(saved)
    assert sent.commit == hub.repositories[NAME].branches["main"]
    assert not hub.repositories[NAME].private
    fetched = pull(NAME, tmp_path / "here" / "pets")
    assert fetched == sent
    back = contents(tmp_path / "here" / "pets")
    origin = json.loads(back.pop("hub.json"))
    assert origin == {"repository": NAME, "revision": "main", "commit": sent.commit}
    assert back == contents(saved)
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["pets"]
    images = make_images(3, 5)
    wanted = prol.load(saved, small_vit()).predict(images)
    assert torch.equal(prol.load(tmp_path / "here" / "pets", small_vit()).predict(images), wanted)
    assert torch.equal(prol.load(f"hub:{NAME}", small_vit()).predict(images), wanted)
    assert torch.equal(prol.load(f"hub:{NAME}@{sent.commit}", small_vit()).predict(images), wanted)


def test_nothing_but_the_three_files_is_uploaded(hub: StandInHub, saved: Path) -> None:
    (saved / "service").mkdir()
    (saved / "service" / "journal.jsonl").write_text("secret")
    (saved / "hub.json").write_text("{}")
    (saved / "notes.txt").write_text("secret")
    push(saved, NAME)
    assert sorted(files_of(hub)) == sorted(FILES)
    assert not any(b"secret" in blob for blob in hub.blobs.values())


def test_a_later_save_is_a_new_commit_and_older_ones_remain_available(
    hub: StandInHub, saved: Path, tmp_path: Path
) -> None:
    first, before = push(saved, NAME), contents(saved)
    learner = prol.load(saved, small_vit())
    learner.learn(make_images(2, 1), ["fox", "gnu"])
    learner.save(saved)
    second = push(saved, NAME)
    third = push(saved, NAME, revision="trial/one")
    assert len({first.commit, second.commit, third.commit}) == 3
    assert files_of(hub) == files_of(hub, "trial/one") == contents(saved) != before
    pull(NAME, tmp_path / "old", revision=first.commit)
    assert contents(tmp_path / "old").items() >= before.items()
    pull(NAME, tmp_path / "old", revision="trial/one")  # in place of what was fetched before
    assert contents(tmp_path / "old").items() >= contents(saved).items()
    prol.load(tmp_path / "old", small_vit()).save(tmp_path / "old")  # nothing of the hub is left then
    assert sorted(contents(tmp_path / "old")) == sorted(FILES)


def test_a_private_upload_never_goes_to_a_public_repository(
    hub: StandInHub, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(saved, NAME, private=True)
    assert hub.repositories[NAME].private
    pull(NAME, tmp_path / "mine")
    hub.repositories["ann/open"] = Repository()
    assert "is public: nothing was uploaded" in refusal(saved, "ann/open", verb=push, private=True)
    assert len(hub.repositories["ann/open"].commits) == 1
    monkeypatch.delenv("HF_TOKEN")
    assert "denies access to ann/pets (401)" in refusal(NAME, tmp_path / "theirs")


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model.safetensors": flip}, "model.safetensors is damaged: its checksum is not the one saved"),
        ({"model.safetensors": lambda content: content[:-9]}, "model.safetensors is damaged"),
        ({"meta.json": lambda content: content[:-9]}, "meta.json is damaged"),
        ({"weights.PT": lambda _: b"pickle"}, "it holds weights.PT, and files of that kind can run code"),
        ({"old/model.pkl": lambda _: b"pickle"}, "it holds old/model.pkl"),
    ],
)
def test_a_damaged_or_dangerous_repository_is_refused_and_the_folder_stays(
    hub: StandInHub, saved: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    push(saved, NAME)
    before = contents(saved)
    hub.repositories[NAME].commit("main", {name: change(before.get(name, b"")) for name, change in changed.items()})
    said = refusal(NAME, tmp_path / "new" / "pets")
    assert message in said
    assert str(tmp_path) not in said
    assert not (tmp_path / "new" / "pets").exists()
    assert list(tmp_path.glob("new/.*")) == []
    assert message in refusal(NAME, saved)
    assert contents(saved) == before
    assert message in refusal(f"hub:{NAME}", verb=prol.load)


def test_files_of_other_names_are_not_even_fetched(hub: StandInHub, saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    hub.repositories[NAME].commit("main", {"train.py": b"import os", "big.safetensors": b"0" * 1000})
    pull(NAME, tmp_path / "pets")
    assert sorted(contents(tmp_path / "pets")) == sorted((*FILES, "hub.json"))
    assert not any("train.py" in request or "big" in request for request in hub.requests)


def test_what_is_no_saved_learner_is_refused(hub: StandInHub, saved: Path, tmp_path: Path) -> None:
    hub.repositories[NAME] = Repository()
    assert "is not a saved learner of prol: it has no model.safetensors" in refusal(NAME, tmp_path / "pets")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "holds other things than a saved learner" in refusal(NAME, tmp_path / "mine")
    assert "write OWNER/NAME" in refusal("pets", tmp_path / "pets")
    assert "write OWNER/NAME" in refusal("../pets", tmp_path / "pets")
    assert "no saved learner at" in refusal(tmp_path / "nowhere", NAME, verb=push)
    (saved / "model.safetensors").write_bytes(flip((saved / "model.safetensors").read_bytes()))
    assert "is damaged" in refusal(saved, NAME, verb=push)
    assert len(hub.repositories[NAME].commits) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "denies access to ann/pets (401): check the name; where it needs a token, log in"),
        (403, "refuses ann/pets (403): the token has no access to it"),
        (404, "has no repository ann/pets (404): check the name"),
        (418, "returned 418 for ann/pets"),
    ],
)
def test_what_the_hub_refuses_is_reported_in_one_line(
    command: Any, hub: StandInHub, saved: Path, tmp_path: Path, status: int, message: str
) -> None:
    hub.status = status
    for arguments in (("pull", NAME, str(tmp_path / "pets")), ("push", str(saved), NAME)):
        outcome = command(*arguments)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert message in outcome.err
    assert not (tmp_path / "pets").exists()


@pytest.mark.usefixtures("hub")
def test_a_missing_revision_is_reported(saved: Path, tmp_path: Path) -> None:
    push(saved, NAME)
    assert "ann/pets has no revision 'v9' on the Hub" in refusal(NAME, tmp_path / "pets", revision="v9")


def test_without_a_token_nothing_is_sent(hub: StandInHub, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert "needs a token: log in with `hf auth login`, or set HF_TOKEN" in refusal(saved, NAME, verb=push)
    assert hub.requests == []


@pytest.mark.usefixtures("hub")
def test_without_a_network_one_line_says_so(
    command: Any, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for arguments in (("pull", NAME, str(tmp_path / "pets")), ("push", str(saved), NAME)):
            outcome = command(*arguments)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1)
            assert "cannot be reached" in outcome.err
            assert "are you offline?" in outcome.err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal(NAME, tmp_path / "pets")
    assert issubclass(HubError, ValueError)
    assert not (tmp_path / "pets").exists()


def test_the_commands_say_which_commit_it_was(command: Any, hub: StandInHub, saved: Path, tmp_path: Path) -> None:
    sent = command("push", str(saved), NAME, "--private", "--revision", "trial")
    commit = hub.repositories[NAME].branches["trial"]
    assert (sent.code, sent.err) == (0, "")
    assert f"is now {NAME} at commit {commit}" in sent.out
    fetched = command("pull", NAME, str(tmp_path / "pets"), "--revision", "trial")
    assert (fetched.code, fetched.err) == (0, "")
    assert f"{NAME} at commit {commit}, written to" in fetched.out
    assert prol.load(tmp_path / "pets", small_vit()).classes == prol.load(saved, small_vit()).classes
