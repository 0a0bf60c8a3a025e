"""What people do with a learner and their images: stream, learn a folder, evaluate; `running.py` has whole runs."""

from prol.prequential.label_issues import LabelIssues
from prol.prequential.learning_curve import LearningCurve
from prol.verbs.chunks import ImageStream, learn_folder, stream
from prol.verbs.evaluation import Evaluation, evaluate, label_issues, learning_curve

__all__ = [
    "Evaluation",
    "ImageStream",
    "LabelIssues",
    "LearningCurve",
    "evaluate",
    "label_issues",
    "learn_folder",
    "learning_curve",
    "stream",
]


def __dir__() -> list[str]:
    return __all__
