"""Names of methods, data sets, protocols and checks, resolved when first used and open to other packages.

Another package adds a name by an entry point in the group `prol.methods`, `prol.datasets`, `prol.protocols` or
`prol.checks` whose value is "module:attribute". A method in a file needs no entry point: its name is `FILE.py:Class`.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, get_type_hints

from prol.method_files import MethodFile, is_file_word
from prol.options import did_you_mean

if TYPE_CHECKING:
    from prol.data import Dataset
    from prol.data.streams import Stream
    from prol.learner import Learner

_BUILT_IN = {
    "methods": {
        "prol": "prol.methods.prol.learner:PROL",
        "prol_plus": "prol.methods.prol_plus.learner:PROLPlus",
        "ncm": "prol.methods.closed_form.ncm:NCM",
        "slda": "prol.methods.closed_form.slda:SLDA",
        "ranpac": "prol.methods.closed_form.ranpac:RanPAC",
        "randumb": "prol.methods.closed_form.randumb:RanDumb",
        "foal": "prol.methods.closed_form.foal:FOAL",
        "layup": "prol.methods.closed_form.layup:LayUP",
        "klda": "prol.methods.closed_form.klda:KLDA",
        "lr_rgda": "prol.methods.closed_form.lr_rgda:LRRGDA",
        "knn": "prol.methods.closed_form.knn:KNN",
        "logreg": "prol.methods.closed_form.logreg:LogReg",
        "head_only": "prol.methods.head_only:HeadOnly",
        "l2p": "prol.methods.prompts.l2p:L2P",
        "dualprompt": "prol.methods.prompts.dualprompt:DualPrompt",
        "coda_prompt": "prol.methods.prompts.coda_prompt:CODAPrompt",
        "convprompt": "prol.methods.prompts.convprompt:ConvPrompt",
        "flyprompt": "prol.methods.prompts.flyprompt:FlyPrompt",
        "finetune": "prol.methods.finetune:Finetune",
        "mos": "prol.methods.adapters.mos:MOS",
        "ease": "prol.methods.adapters.ease:EASE",
        "lae": "prol.methods.adapters.lae:LAE",
        "er": "prol.methods.replay.er:ER",
        "derpp": "prol.methods.replay.derpp:DERPP",
        "er_ace": "prol.methods.replay.er:ERACE",
        "gdumb": "prol.methods.replay.gdumb:GDumb",
        "mose": "prol.methods.replay.mose:MOSE",
        "ocm": "prol.methods.replay.ocm:OCM",
        "onpro": "prol.methods.replay.onpro:OnPro",
        "esrm": "prol.methods.replay.esrm:ESRM",
        "gsa": "prol.methods.replay.gsa:GSA",
    },
    "datasets": {
        "digits": "prol.data.builtin:digits",
        "glyphs": "prol.data.builtin:glyphs",
        "generated": "prol.data.builtin:generated",
        "folder": "prol.data.folder:folder",
        "parquet": "prol.data.parquet:parquet",
        "cifar100": "prol.data.cifar100:cifar100",
        "imagenet_r": "prol.data.imagenet_variants:imagenet_r",
        "imagenet_a": "prol.data.imagenet_variants:imagenet_a",
        "cub200": "prol.data.cub200:cub200",
    },
    "checks": {
        "PC101": "prol.checks.images:few_images",
        "PC102": "prol.checks.images:near_duplicates",
        "PC103": "prol.checks.learners:contradicting_labels",
        "PC201": "prol.checks.learners:preprocessing",
        "PC202": "prol.checks.learners:budget",
        "PC203": "prol.checks.learners:label_order",
        "PC301": "prol.checks.runs:worse_than_ncm",
        "PC302": "prol.checks.runs:calibrated",
        "PC303": "prol.checks.runs:machine_busy",
        "PC304": "prol.checks.runs:growing_times",
    },
    "protocols": {
        "disjoint": "prol.data.streams.disjoint:disjoint",
        "blurry": "prol.data.streams.blurry:blurry",
        "iblurry": "prol.data.streams.blurry:iblurry",
        "siblurry": "prol.data.streams.blurry:siblurry",
        "gradual": "prol.data.streams.gradual:gradual",
        "imbalanced": "prol.data.streams.disjoint:imbalanced",
    },
}


def names(group: str) -> dict[str, str]:
    """Every known name of a group ("methods", "datasets", "protocols" or "checks") and where it lives."""
    return _known(group, _added(group))


def list_methods(pattern: str = "*") -> list[str]:
    """Names of methods for `prol.create`, sorted; all, or those that match a pattern.

    >>> list_methods("*lda")
    ['klda', 'slda']
    """
    return sorted(fnmatch.filter(names("methods"), pattern))


def list_datasets(pattern: str = "*") -> list[str]:
    """Names of data sets for `prol run`, sorted; all, or those that match a pattern.

    >>> list_datasets("imagenet*")
    ['imagenet_a', 'imagenet_r']
    """
    return sorted(fnmatch.filter(names("datasets"), pattern))


def load_all(group: str) -> tuple[dict[str, Any], list[str]]:
    """The object of every name of a group that can be loaded, and a sentence for each that cannot."""
    found: dict[str, Any] = {}
    problems: list[str] = []
    for name in names(group):
        try:
            found[name] = _resolve(group, name)
        except ValueError as error:
            problems.append(str(error))
    return found, problems


def method(name: str) -> type[Learner]:
    """The learner class behind a method's name, or behind `FILE.py:Class`, which executes that file."""
    file = MethodFile.named(name)
    return registered_method(name) if file is None else file.load()


def registered_method(name: str) -> type[Learner]:
    """The learner class behind a name in a saved file, whose writer must not choose what is executed."""
    found: type[Learner] = _resolve("methods", name)
    return found


def is_method(name: str) -> bool:
    """Whether a name is known or has the form of `FILE.py:Class`."""
    return is_file_word(name) or name in names("methods")


def dataset(name: str) -> Callable[..., Dataset]:
    """The function that opens a data set."""
    found: Callable[..., Dataset] = _resolve("datasets", name)
    return found


def protocol(name: str) -> Callable[..., Stream]:
    """The function that orders a data set's labels into a stream."""
    found: Callable[..., Stream] = _resolve("protocols", name)
    return found


def _resolve(group: str, name: str) -> Any:
    added = _added(group)
    known = _known(group, added)
    if not isinstance(name, str):  # a file from elsewhere may have anything there
        raise ValueError(f"{group[:-1]} must be a name, got {name!r:.80}")
    if name not in known:
        hint = did_you_mean(name, known)
        raise ValueError(f"unknown {group[:-1]} {name!r}{hint}; known: {', '.join(sorted(known))}")
    if name in added:
        return _load(group, added[name])
    module, _, attribute = known[name].partition(":")
    return getattr(import_module(module), attribute)


def _known(group: str, added: Mapping[str, EntryPoint]) -> dict[str, str]:
    return _BUILT_IN[group] | {name: point.value for name, point in added.items()}


def _added(group: str) -> dict[str, EntryPoint]:
    """Names that other packages have added."""
    return _entry_points(group, tuple(sys.path))


@lru_cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Searching all installed packages takes 15 ms, and a sweep looks up hundreds of names."""
    del path
    return {point.name: point for point in entry_points(group=f"prol.{group}")}


def _load(group: str, point: EntryPoint) -> Any:
    """The object another package registers under a name. Whatever fails there must be fixed in that package."""
    try:
        found = point.load()
        _REQUIRED.get(group, _require_function)(found, point.value)
        if group == "checks" and found.code != point.name:
            raise TypeError(f"its code is {found.code}")
    except (Exception, SystemExit) as error:
        package = "another package" if point.dist is None else f"the package {point.dist.name} {point.dist.version}"
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(
            f"{group[:-1]} {point.name!r} of {package} cannot be loaded from {point.value} ({cause}): "
            "fix or uninstall that package"
        ) from error
    return found


def _require_learner(found: Any, where: str) -> None:
    if not hasattr(found, "read_options"):
        raise TypeError(f"{where} is no learner")
    if not is_dataclass(getattr(found, "Options", None)):
        raise TypeError(f"{where} has no dataclass Options")
    for name in ("family", "citation"):
        if not isinstance(getattr(found, name, ""), str):
            raise TypeError(f"the {name} of {where} is no text")


def _require_check(found: Any, where: str) -> None:
    if not (callable(found) and all(isinstance(getattr(found, name, None), str) for name in ("code", "title"))):
        raise TypeError(f"{where} is no prol.checks.Check")


def _require_function(found: Any, where: str) -> None:
    if not callable(found):
        raise TypeError(f"{where} is no function")
    get_type_hints(found)  # by which its options are read


_REQUIRED = {"methods": _require_learner, "checks": _require_check}
