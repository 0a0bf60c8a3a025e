"""Runs followed by TensorBoard, Weights & Biases and MLflow, each an extra that is imported when a run begins."""

from prol.integrations.trackers.base import Tracker
from prol.integrations.trackers.choosing import make_trackers
from prol.integrations.trackers.mlflow import MLflow
from prol.integrations.trackers.tensorboard import TensorBoard
from prol.integrations.trackers.weights_and_biases import WeightsAndBiases

__all__ = ["MLflow", "TensorBoard", "Tracker", "WeightsAndBiases", "make_trackers"]
