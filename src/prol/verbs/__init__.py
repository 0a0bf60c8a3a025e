"""What people do with a learner and their images: stream, learn a folder, evaluate; `running.py` has whole runs."""

from prol.verbs.chunks import ImageStream, learn_folder, stream
from prol.verbs.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "ImageStream", "evaluate", "learn_folder", "stream"]


def __dir__() -> list[str]:
    return __all__
