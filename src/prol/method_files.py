"""`FILE.py:Class`: a method in a file that belongs to no installed package."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from prol.options import did_you_mean

_WORD = re.compile(r"(?P<file>.+\.py):(?P<kind>\w+)")
_MODULES: dict[tuple[Path, str], ModuleType] = {}
_FILES: dict[type, MethodFile] = {}


@dataclass(frozen=True)
class MethodFile:
    """A class in a file; what is executed is the content that was hashed."""

    path: Path
    kind: str
    content: bytes

    @classmethod
    def named(cls, word: str) -> MethodFile | None:
        """The file that `FILE.py:Class` names; None for any other word. Nothing is executed."""
        found = _WORD.fullmatch(word)
        if found is None:
            if word.endswith(".py"):
                raise ValueError(f"method {word!r} names a file and no class: write {word}:CLASS")
            return None
        path = Path(found["file"]).expanduser().resolve()
        if not path.is_file():
            raise FileNotFoundError(f"method {word!r}: there is no file {path}")
        return cls(path, found["kind"], path.read_bytes())

    @property
    def word(self) -> str:
        return f"{self.path}:{self.kind}"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def load(self) -> type[Any]:
        """Executes the file, once for each content, and returns its class."""
        module = self._module()
        found = getattr(module, self.kind, None)
        if found is None:
            there = [name for name, value in vars(module).items() if _defined_in(module, value)]
            hint = did_you_mean(self.kind, there)
            raise ValueError(
                f"{self.path} has no class {self.kind!r}{hint}; methods there: {', '.join(there) or 'none'}"
            )
        if not (isinstance(found, type) and hasattr(found, "read_options")):
            raise ValueError(f"{self.kind} of {self.path} is not a method: inherit from prol.Learner")
        if not isinstance(getattr(found, "name", None), str):
            raise ValueError(f"{self.kind} of {self.path} has no name: set the class attribute `name`")
        _FILES[found] = self
        return found

    def _module(self) -> ModuleType:
        key = self.path, self.sha256
        if key in _MODULES:
            return _MODULES[key]
        module = ModuleType(f"prol_method_{self.sha256[:12]}_{self.path.stem}")
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module  # dataclasses look their annotations up there
        try:
            exec(compile(self.content, str(self.path), "exec"), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(f"{self.path} cannot be executed ({cause})") from error
        _MODULES[key] = module
        return module


def _defined_in(module: ModuleType, value: Any) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "read_options")


def is_file_word(word: str) -> bool:
    """Whether a method's name is `FILE.py:Class`."""
    return _WORD.fullmatch(word) is not None


def file_of(kind: type) -> MethodFile | None:
    """The file that a class was loaded from by its `FILE.py:Class`, if it was."""
    return _FILES.get(kind)


def label(word: str) -> str:
    """A method's name for tables and folders.

    >>> label("ideas/naive_bayes.py:NaiveBayes"), label("ncm")
    ('naive_bayes.NaiveBayes', 'ncm')
    """
    found = _WORD.fullmatch(word)
    return word if found is None else f"{Path(found['file']).stem}.{found['kind']}"
