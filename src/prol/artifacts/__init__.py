"""What a learner leaves on disk: safetensors and JSON, written whole or not at all."""

from prol.artifacts.checkpoint import Checkpoints
from prol.artifacts.class_folder import ClassFolder, list_classes
from prol.artifacts.loading import load
from prol.artifacts.saving import save

__all__ = ["Checkpoints", "ClassFolder", "list_classes", "load", "save"]
