"""Shows that two versions compute the same numbers: every method in every variant, bit for bit.

    python tools/same_numbers.py OLD_COMMIT [NEW_COMMIT] --out FOLDER [--only prol,ncm] [--jobs 2] [--list]

Without NEW_COMMIT the working tree is the new version. Each case is one `prol run` in a process of its own, with the
same command line, interpreter and number of threads for both versions; processes are forked from one that has imported
what takes long. Compared are `result.json` and the log of events
but for times and hashes of files, and the saved learner: each tensor bit for bit, and `meta.json` but for versions.

A file, tensor or option that was renamed on purpose stands in `same_numbers_renamed.json`: {"old name": "new name"},
for a whole name or for a part between slashes. A new option that is off by default is no difference.
Results stay in FOLDER, by version: a second call runs what is missing.
A version is known by the hash of its sources, so commits that leave those alone share their results. The summary is
written to FOLDER/summary.json; the exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[1]
RENAMED = Path(__file__).with_name("same_numbers_renamed.json")
COMMON = "--device cpu --precision float32 --threads 1 --workers 1"
VIT = "--backbone test_vit@random --limit-per-class 20"
RESNET = "--backbone resnet18_cifar@4 --limit-per-class 4 --tasks 3"
NOT_COMPARED = {"config_sha256", "model_sha256", "versions", "prol"}

_PLUS = "prol_plus digits budget_mb=1"
_RANPAC, _RANDUMB = "ranpac digits features=200", "randumb digits features=200"
_ABLATIONS = (
    "ft_inter ft_inter_intra generator keys orthogonality hard_soft full norms_only null_prefix generator_without_norms"
)
_PROL = (
    "lr=0.01 lr_scaling=false norm_lr_factor=0.1 norm_eta_min=proportional clip=0.5 hsu=false threshold=0.2 t_max=3 "
    "augment=none input_range=symmetric crop_pct=0.7 "
    "length=3 blocks=2 generator_bias=false layer_sum=false query=class_token query=patch_embedding "
    "prompt_selection=label similarity_factor=one similarity_factor=zero similarity_factor=released "
    "detach_factor=true ort_raw=true ort_detach_old=true gen_raw=true gen_off_diagonal=false head=growing "
    "thaw_heads=true tune_norms=false scalers=false generator=false"
)
_PROL_PLUS = (
    "features=50 features=0 blocks=2 frequency=1.5 "
    "adapt_steps=0 adapt_steps=5 adapt_lr=0.01 carry=false input_range=unit crop_pct=0.7"
)


def _cases() -> list[str]:
    """Command lines of `prol run`, without folder, device and precision."""
    vit = ["ncm digits", "ncm digits distance=euclidean", "ncm digits augment=crop_flip", "ncm digits input_range=unit"]
    vit += ["slda digits", *(f"slda digits shrinkage={share}" for share in ("0", "0.1", "1"))]
    vit += ["slda digits augment=crop_flip"]
    vit += [_RANPAC, f"{_RANPAC} classifier=lda", f"{_RANPAC} ridge=0.5", f"{_RANPAC} accumulate=float32"]
    vit += [f"{_RANPAC} memory={memory}" for memory in ("all", "5", "none")]
    vit += [f"{_RANPAC} classifier=lda memory={memory}" for memory in ("all", "5", "none")]
    vit += [f"{_RANPAC} adapt=norms", f"{_RANPAC} adapt=norms adapt_lr=0.01", "ranpac digits features=none"]
    vit += [_RANDUMB, f"{_RANDUMB} gamma=0.05", f"{_RANDUMB} priors=false", f"{_RANDUMB} accumulate=float32"]
    vit += [f"{_RANDUMB} memory={memory}" for memory in ("all", "5", "none")]
    vit += ["foal digits features=200", "foal digits features=200 ridge=0.1"]
    vit += [_PLUS, "prol_plus digits budget_mb=4", *(f"{_PLUS} {option}" for option in _PROL_PLUS.split())]
    vit += [f"{_PLUS} task_min_classes=3 task_min_steps=2 --no-boundaries"]
    vit += [f"prol digits preset={preset}" for preset in ("paper", "released", "literal")]
    vit += [f"prol digits ablation={row}" for row in _ABLATIONS.split()]
    vit += [f"prol digits {option}" for option in _PROL.split()]
    vit += [f"prol digits coefficients={name} blocks=5" for name in ("cifar100", "cub200")]
    vit += ["prol digits --no-announce", "prol digits task_min_steps=5 --no-boundaries"]
    vit += ["head_only digits", "head_only digits intra=1.0"]
    vit += ["finetune digits", "finetune digits intra=1.0", "finetune digits clip=0.5"]
    votes = "train_selection=batch_vote test_selection=batch_vote"
    vit += ["l2p digits", "l2p digits init=small", "l2p digits prompt_position=none", f"l2p digits {votes}"]
    vit += ["dualprompt digits", "dualprompt digits init=small", "dualprompt digits test_selection=batch_vote"]
    vit += ["coda_prompt digits", "coda_prompt digits orthogonality=0.1", "coda_prompt digits clip=0.5"]
    vit += ["convprompt digits", "convprompt digits train_keys=true"]
    vit += ["convprompt digits generators=auto auto_chunks=2"]
    vit += ["mos digits", "mos digits alignment=false", "mos digits align_when=task_end", "mos digits covariance=full"]
    vit += ["ease digits", "ease digits alpha=0.5", "lae digits", "lae digits module=lora targets=qkv"]
    vit += ["lae digits module=lora", "lae digits module=prefix"]
    protocols = ("blurry", "iblurry", "siblurry", "gradual", "imbalanced")
    vit += [f"ncm digits --protocol {protocol} --points 4 --prequential" for protocol in protocols]
    vit += ["prol digits --protocol siblurry --points 4 --prequential"]
    vit += ["slda digits --class-order shuffled --shots 3 --seed 5", "slda digits --development --inference-time"]
    vit += ["slda glyphs --tasks 4 --chunk 7", "prol digits --rate 100 --keep 2 --step-seconds 0.12"]
    small = "memory=30 replay=8"
    resnet = [f"{method} digits {small}" for method in ("er", "derpp", "er_ace", "gsa", "esrm", "mose")]
    resnet += [f"er digits {small} --protocol iblurry", f"er digits {small} lr=0.01 weight_decay=0.1"]
    resnet += [f"derpp digits {small} alpha=0.5 beta=0.3", f"esrm digits {small} detach_clean=true"]
    resnet += [f"mose digits {small} {option}" for option in ("views=two_full", "test=all", "answer=heads")]
    resnet += ["gdumb digits memory=30 epochs=2 batch=8"]
    resnet += [f"ocm digits {small} rotations=2", f"onpro digits {small} rotations=2 close_pairs=2"]
    resnet += [f"onpro digits {small} rotations=2 close_pairs=0"]
    return [f"{case} {VIT}" for case in vit] + [f"{case} {RESNET}" for case in resnet]


@dataclass(frozen=True)
class Case:
    command: str

    @property
    def method(self) -> str:
        return self.command.split()[0]

    @property
    def name(self) -> str:
        """As short as it can be told: without what all cases of its network share."""
        return self.command.removesuffix(VIT).removesuffix(RESNET).strip()

    @property
    def folder(self) -> str:
        return self.name.replace(" --", "__").replace(" ", "_")


DRIVER = """
import json, os, sys, traceback
import safetensors.torch, timm, torch, torchvision
from prol.cli.app import main
for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if not child:
        said = os.open(given["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        status = 1
        try:
            main(given["arguments"])
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs command lines of prol, one after the other, each in a process of its own."""


class Version:
    """One side: where its sources are, where its results are stored, and processes that run it, one a thread."""

    def __init__(self, source: Path, results: Path) -> None:
        self.source, self.results = source, results
        self._drivers: dict[int, subprocess.Popen[str]] = {}
        self.environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment |= {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def run(self, case: Case) -> str | None:
        """Runs a case unless its result is there; returns why it failed, if it did."""
        folder, note = self.results / case.folder, self.results / f"{case.folder}.command"
        if (folder / "result.json").exists() and note.exists() and note.read_text() == case.command:
            return None
        shutil.rmtree(folder, ignore_errors=True)
        said = self.results / f"{case.folder}.said"
        arguments = ["run", *case.command.split(), *COMMON.split(), "--out", str(folder)]
        if self._call({"arguments": arguments, "said": str(said)}):
            return " ".join(said.read_text(encoding="utf-8").split())[-300:]
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
        said.unlink()
        note.write_text(case.command)
        return None

    def close(self) -> None:
        for driver in self._drivers.values():
            driver.kill()
            driver.communicate()

    def _call(self, given: dict[str, Any]) -> int:
        thread = threading.get_ident()
        if thread not in self._drivers:
            self._drivers[thread] = subprocess.Popen(
                [sys.executable, "-c", DRIVER],
                env=self.environment,
                cwd=self.results,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        driver = self._drivers[thread]
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(json.dumps(given) + "\n")
        driver.stdin.flush()
        return int(driver.stdout.readline())


@contextmanager
def opened(commit: str | None, out: Path) -> Iterator[Version]:
    """The sources of a commit, or a copy of those of the working tree, so that they may be edited meanwhile."""
    with tempfile.TemporaryDirectory(prefix="same_numbers_") as place:
        tree = Path(place, "tree")
        if commit is None:
            shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
            name = f"tree-{_sources_sha256(tree / 'src')[:12]}"
        else:
            name = f"commit-{_git('rev-parse', '--verify', f'{commit}:src')[:12]}"
            _git("worktree", "add", "--detach", "--force", str(tree), commit)
        try:
            (out / name).mkdir(parents=True, exist_ok=True)
            version = Version(tree / "src", out / name)
            _require_own_sources(version)
            try:
                yield version
            finally:
                version.close()
        finally:
            if commit is not None:
                _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def _sources_sha256(source: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _require_own_sources(version: Version) -> None:
    """An installed prol must not be the one that runs."""
    command = [sys.executable, "-c", "import prol; print(prol.__file__)"]
    done = subprocess.run(command, env=version.environment, cwd=version.results, check=True, capture_output=True)
    found = Path(done.stdout.decode().strip())
    if not found.is_relative_to(version.source):
        raise SystemExit(f"{found} is imported, not what lies in {version.source}")


def differences(old: Path, new: Path, renamed: Mapping[str, str]) -> list[str]:
    """What is not the same in the folders of two runs; empty if all is."""
    found = _different("result", _content(old / "result.json", renamed), _content(new / "result.json", {}))
    found += _different("events", _events(old, renamed), _events(new, {}))
    found += _different("meta", _content(old / "model/meta.json", renamed), _content(new / "model/meta.json", {}))
    then = {_name(name, renamed): t for name, t in load_file(old / "model/model.safetensors").items()}
    now = load_file(new / "model/model.safetensors")
    found += [f"tensor {name} is {'new' if name in now else 'gone'}" for name in sorted(then.keys() ^ now.keys())]
    for name in sorted(then.keys() & now.keys()):
        one, other = then[name], now[name]
        if one.dtype != other.dtype or one.shape != other.shape:
            found.append(f"tensor {name}: {one.dtype} {tuple(one.shape)} -> {other.dtype} {tuple(other.shape)}")
        elif not torch.equal(_bits(one), _bits(other)):
            apart = (one.double() - other.double()).abs().max().item()
            found.append(f"tensor {name}: up to {apart:.2g} apart")
    return found


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """NaN equals NaN, and 0 is not -0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _events(folder: Path, renamed: Mapping[str, str]) -> Any:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [_comparable(json.loads(line), renamed) for line in lines]


def _content(file: Path, renamed: Mapping[str, str]) -> Any:
    return _comparable(json.loads(file.read_text(encoding="utf-8")), renamed)


def _comparable(content: Any, renamed: Mapping[str, str]) -> Any:
    if isinstance(content, list):
        return [_comparable(one, renamed) for one in content]
    if not isinstance(content, dict):
        return content
    return {
        _name(name, renamed): _comparable(value, renamed)
        for name, value in content.items()
        if name not in NOT_COMPARED and not name.endswith("seconds") and not name.endswith("per_second")
    }


def _name(name: str, renamed: Mapping[str, str]) -> str:
    return renamed.get(name) or "/".join(renamed.get(part, part) for part in name.split("/"))


def _different(place: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        off = {name for name in new if place == "meta.options" and new[name] is None}
        changed = sorted((old.keys() ^ new.keys()) - (off - old.keys()))
        found = [f"{place}.{name} is {'new' if name in new else 'gone'}" for name in changed]
        return found + [
            line for name in old if name in new for line in _different(f"{place}.{name}", old[name], new[name])
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for i in range(len(old)) for line in _different(f"{place}[{i}]", old[i], new[i])]
    # As text, so that NaN equals NaN and 1 is not 1.0.
    return [] if repr(old) == repr(new) else [f"{place}: {old!r:.60} -> {new!r:.60}"]


def examine(case: Case, old: Version, new: Version, renamed: Mapping[str, str]) -> list[str]:
    for side, version in (("old", old), ("new", new)):
        failed = version.run(case)
        if failed is not None:
            return [f"the {side} version failed: {failed}"]
    return differences(old.results / case.folder, new.results / case.folder, renamed)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="a commit")
    parser.add_argument("new", nargs="?", help="a commit; the working tree by default")
    parser.add_argument("--out", type=Path, required=True, help="folder for results, which are used again")
    parser.add_argument("--only", help="methods, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--old-only", action="store_true", help="run the old version only, for a comparison later")
    parser.add_argument("--list", action="store_true", help="say which cases there are, and run none")
    given = parser.parse_args()
    cases = [Case(command) for command in _cases()]
    assert len({case.folder for case in cases}) == len(cases), "two cases share a folder"
    if given.only:
        wanted = set(given.only.split(","))
        cases = [case for case in cases if case.method in wanted]
        unknown = wanted - {case.method for case in cases}
        if unknown:
            raise SystemExit(f"there is no case of {', '.join(sorted(unknown))}")
    if given.list:
        print("\n".join(case.name for case in cases))
        return
    given.out = given.out.resolve()
    renamed = json.loads(RENAMED.read_text(encoding="utf-8"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary folders go however it is stopped
    began, outcomes = time.monotonic(), {}

    def one(case: Case) -> tuple[Case, list[str]]:
        return case, examine(case, old, new, renamed)

    with ExitStack() as stack:
        old = stack.enter_context(opened(given.old, given.out))
        new = old if given.old_only else stack.enter_context(opened(given.new, given.out))
        if new.results == old.results and not given.old_only:
            raise SystemExit("both commits have the same sources: there is nothing to compare")
        against = "" if given.old_only else f" against {new.results.name}"
        print(f"{old.results.name}{against}: {len(cases)} cases", flush=True)
        threads = ThreadPoolExecutor(given.jobs)
        stack.callback(threads.shutdown, cancel_futures=True)
        for number, (case, found) in enumerate(threads.map(one, cases), 1):
            said = f"DIFFERENT {'; '.join(found[:3])}" if found else "ran" if given.old_only else "same"
            more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
            print(f"[{number}/{len(cases)}] {case.name}: {said}{more}", flush=True)
            outcomes[case.name] = found
    bad = {name: found for name, found in outcomes.items() if found}
    good, seconds = len(outcomes) - len(bad), round(time.monotonic() - began)
    if not given.old_only:
        summary = {"old": old.results.name, "new": new.results.name, "cases": len(outcomes), "same": good}
        content = json.dumps(summary | {"seconds": seconds, "different": bad}, indent=1)
        (given.out / "summary.json").write_text(content + "\n", encoding="utf-8")
    print(f"{good} of {len(outcomes)} cases {'ran' if given.old_only else 'are the same'}; {seconds} s")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
