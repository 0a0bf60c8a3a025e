"""Deprecated: the former name of `prol.data.streams`, which will be removed in the next version."""

import sys
import warnings

from prol.data import streams
from prol.data.streams import *  # noqa: F403

warnings.warn("prol.streams is deprecated: import from prol.data.streams", DeprecationWarning, stacklevel=2)
for _module in ("base", "presence", "disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced"):
    sys.modules[f"{__name__}.{_module}"] = streams
