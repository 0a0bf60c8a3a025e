"""What people do with a learner and their images: stream them, learn a folder of them, evaluate."""

from prol.verbs.chunks import ImageStream, learn_folder, stream
from prol.verbs.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "ImageStream", "evaluate", "learn_folder", "stream"]
