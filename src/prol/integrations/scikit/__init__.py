"""Classifiers for scikit-learn: any prol learner over images, and streaming LDA over feature vectors."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("this needs scikit-learn: install it with pip install 'prol[sklearn]'") from error

from prol.integrations.scikit.features import StreamingLDA
from prol.integrations.scikit.images import PROLClassifier

__all__ = ["PROLClassifier", "StreamingLDA"]
