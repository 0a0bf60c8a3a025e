"""prol learns an image classifier from a stream in one pass, stores no sample, and predicts at any moment."""

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from prol.former_names import FormerModules

# Read by OpenMP when torch is loaded. By default its threads spin while they wait, which takes processors from other
# processes and, as soon as these want them, from the threads that are waited for.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    __version__ = version("prol")
except PackageNotFoundError:  # run from source
    __version__ = "0.1.0"

__all__ = [
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
]

sys.meta_path.append(FormerModules())

if TYPE_CHECKING:
    from prol.creation import create
    from prol.learner import Footprint, Learner
    from prol.loading import load, save
    from prol.merging import merge
    from prol.registry import list_datasets, list_methods
    from prol.testing import check_learner
    from prol.verbs import Evaluation as Evaluation
    from prol.verbs import LabelIssues as LabelIssues
    from prol.verbs import LearningCurve as LearningCurve
    from prol.verbs import evaluate as evaluate
    from prol.verbs import label_issues as label_issues
    from prol.verbs import learn_folder as learn_folder
    from prol.verbs import learning_curve as learning_curve
    from prol.verbs import stream
    from prol.verbs.running import compare, run
else:
    # Loaded on first use: `prol --help` and `import prol` do not wait for torch.
    _LAZY = {
        "Footprint": "prol.learner",
        "Learner": "prol.learner",
        "check_learner": "prol.testing",
        "compare": "prol.verbs.running",
        "create": "prol.creation",
        "evaluate": "prol.verbs",
        "label_issues": "prol.verbs",
        "learn_folder": "prol.verbs",
        "learning_curve": "prol.verbs",
        "list_datasets": "prol.registry",
        "list_methods": "prol.registry",
        "load": "prol.loading",
        "merge": "prol.merging",
        "run": "prol.verbs.running",
        "save": "prol.loading",
        "stream": "prol.verbs",
    }

    # `import prol` suffices for prol.backbones.open_backbone, whatever else was imported before.
    _PACKAGES = {"backbones", "checks", "data", "evaluation", "integrations", "runs", "testing", "verbs"}

    def __getattr__(name):
        if name in _LAZY:
            from importlib import import_module

            return getattr(import_module(_LAZY[name]), name)
        if name in _PACKAGES:
            from importlib import import_module

            return import_module(f"prol.{name}")
        raise AttributeError(f"module 'prol' has no attribute {name!r}")

    def __dir__():
        return sorted(__all__)
