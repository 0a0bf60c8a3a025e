"""Classifiers for river: any prol learner over images, and streaming LDA over dictionaries of features."""

try:
    import river.utils.dataframe  # noqa: F401
except ImportError as error:
    raise ImportError("this needs river 0.26 or later: install it with pip install 'prol[river]'") from error

from prol.integrations.river_models.features import StreamingLDA
from prol.integrations.river_models.images import PROLClassifier

__all__ = ["PROLClassifier", "StreamingLDA"]
