"""MLflow: on a tracking server, or in a folder without one."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from prol.integrations.trackers.base import EVERY, Book, Tracker
from prol.integrations.trackers.memory import Memory
from prol.integrations.trackers.readings import flat_settings
from prol.runs import RunInView

_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT": "30",
}
"""A run waits for each request; MLflow's own patience with a server that has gone is minutes."""
_WORDS = ("databricks", "databricks-uc", "uc")
"""Whole addresses to MLflow, though they look like the names of folders."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""Of two characters at least: one alone is a drive of Windows."""
_LONGEST = 500
"""Characters of a setting; older servers take no more."""


class MLflow(Tracker):
    """Metrics, parameters and tags of a run; no model is uploaded, the tag `folder` says where it lies.

    Args:
        uri: a tracking server (http://...), another address that MLflow knows (databricks) or a folder;
            MLFLOW_TRACKING_URI by default, else RUN/mlflow.
        experiment: under which name the run appears.
    """

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = "prol", every: int = EVERY) -> None:
        super().__init__(every)
        self.uri, self.experiment = uri or os.environ.get("MLFLOW_TRACKING_URI"), experiment

    def open(self, run: RunInView) -> Book:
        return _Run(self.uri or str(run.folder / "mlflow"), self.experiment, run)


class _Run(Book):
    def __init__(self, uri: str, experiment: str, run: RunInView) -> None:
        uri = _address(uri)
        for name, value in _PATIENCE.items():
            os.environ.setdefault(name, value)
        if uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow has it refused since version 3
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self.client, self.metric, self.memory = MlflowClient(tracking_uri=uri), Metric, Memory(run.folder, "mlflow")
        self.before: dict[str, int] = {}
        known, at = self.memory.read(), [uri, experiment]
        if known.get("at") == at:
            self.run_id = str(known["run_id"])
            self.client.update_run(self.run_id, status="RUNNING")
            self._read_before()
        else:
            self.run_id = self._begin(experiment, run)
            self.memory.write({"at": at, "run_id": self.run_id})

    def _begin(self, experiment: str, run: RunInView) -> str:
        from mlflow.entities import Param

        folder = run.folder.resolve()
        tags = {"folder": str(folder), "model": str(folder / "model")}
        begun: Any = self.client.create_run(self._experiment(experiment), run_name=folder.name, tags=tags)
        settings = [Param(name, str(value)[:_LONGEST]) for name, value in flat_settings(run.config).items()]
        for start in range(0, len(settings), 100):  # a request may have no more
            self.client.log_batch(begun.info.run_id, params=settings[start : start + 100])
        return str(begun.info.run_id)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:  # another run was faster
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _read_before(self) -> None:
        for name in self.client.get_run(self.run_id).data.metrics:
            self.before[name] = max(one.step for one in self.client.get_metric_history(self.run_id, name))

    def last_steps(self) -> dict[str, int]:
        return self.before

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(name, float(value), now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def conclude(self, step: int, numbers: Mapping[str, float]) -> None:
        self.write(step, numbers)

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run_id, status="FINISHED" if finished else "KILLED")


def _address(uri: str) -> str:
    """What MLflow takes as an address, as it is; else a folder."""
    is_path = uri.startswith("file:") or not _SCHEME.match(uri)
    if "://" in uri or uri in _WORDS or not is_path:
        return uri
    return Path(uri.removeprefix("file:")).expanduser().resolve().as_uri()
