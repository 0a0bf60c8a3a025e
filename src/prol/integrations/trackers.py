"""TensorBoard, Weights & Biases and MLflow. Each is an optional extra, imported when a run starts."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal, cast

from prol.integrations.tracking import EVERY, Metrics, MetricWriter, Tracker, flat_settings, read_state, write_state
from prol.options import bind_arguments, parse_pairs
from prol.runs import RunFolder, RunInView

__all__ = ["MLflow", "TensorBoard", "Tracker", "WeightsAndBiases", "make_trackers"]


class TensorBoard(Tracker):
    """Scalars, settings and the result as event files; view them with `tensorboard --logdir runs`.

    Args:
        folder: where the event files go, in a folder with the run's name; RUN/tensorboard by default. A resumed run
            adds a file to its folder; another run of the same name gets NAME-2.
    """

    name: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    def __init__(self, folder: str | None = None, every: int = EVERY) -> None:
        super().__init__(every)
        self.folder = folder

    def open(self, run: RunInView) -> MetricWriter:
        folder = run.folder / "tensorboard" if self.folder is None else _own_folder(Path(self.folder).resolve(), run)
        return _EventFiles(folder, run)


class _EventFiles(MetricWriter):
    def __init__(self, folder: Path, run: RunInView) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        written = EventAccumulator(str(folder), size_guidance={"scalars": 1, "tensors": 1})
        if folder.is_dir():
            written.Reload()
        tags, self.settings = written.Tags(), flat_settings(run.config)
        super().__init__({name: events[-1].step for name in tags["scalars"] if (events := written.Scalars(name))})
        self.writer = SummaryWriter(str(folder))
        if not any(tag.startswith("settings") for tag in tags["tensors"]):
            rows = [f"| {name} | `{value}` |" for name, value in self.settings.items()]
            heading = f"Run folder: `{run.folder.resolve()}`"
            self.writer.add_text("settings", "\n".join([heading, "", "| setting | value |", "|---|---|", *rows]), 0)

    def write(self, step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def write_summary(self, step: int, metrics: Metrics) -> None:
        # In the same folder, so that the table of hyperparameters has one row per run.
        self.writer.add_hparams(self.settings, dict(metrics), run_name=".", global_step=step)

    def close(self, finished: bool) -> None:
        del finished
        self.writer.close()


_OWNER = "prol_run.txt"
"""File in a shared folder, beside the event files of a run: the id that the run's own folder stores."""


def _own_folder(shared: Path, run: RunInView) -> Path:
    """`shared/NAME`, or NAME-2 and so on where other runs have that name; the same folder after a resume."""
    here, state = run.folder.resolve(), read_state(run, TensorBoard.name)
    owner = Path(str(state.get("run", here)))
    if owner != here and RunFolder(owner).config.is_file():
        state = {}  # this run is a copy: the one that the state belongs to still exists
    identity, folder = str(state.get("id") or uuid.uuid4().hex), Path(str(state.get("at", "")))
    if folder.parent != shared or _owner(folder) != identity:
        names = (here.name if number == 1 else f"{here.name}-{number}" for number in count(1))
        folder = next(shared / name for name in names if _claim(shared / name, identity))
    write_state(run, TensorBoard.name, {"id": identity, "at": str(folder), "run": str(here)})
    return folder


def _claim(folder: Path, identity: str) -> bool:
    """Creates the folder, which only one of two runs that start at the same time can, or recognises its own."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return _owner(folder) == identity
    (folder / _OWNER).write_text(identity + "\n", encoding="utf-8")
    return True


def _owner(folder: Path) -> str | None:
    try:
        return (folder / _OWNER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


class WeightsAndBiases(Tracker):
    """Offline (`mode="offline"` or WANDB_MODE=offline) nothing leaves the machine; `wandb sync RUN/wandb/*` uploads it.

    Args:
        project: where the run appears.
        entity: owner of the project; your own by default.
        mode: online or offline; WANDB_MODE by default, else online.
        group: runs that are shown together.
    """

    name: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __init__(
        self,
        project: str = "prol",
        entity: str | None = None,
        mode: str | None = None,
        group: str | None = None,
        every: int = EVERY,
    ) -> None:
        super().__init__(every)
        self.project, self.entity, self.group = project, entity, group
        self.mode = cast('Literal["online", "offline", "disabled"]', mode or os.environ.get("WANDB_MODE") or "online")
        if self.mode not in ("online", "offline", "disabled"):
            raise ValueError(f"wandb mode must be online or offline, got {self.mode!r}")
        if self.mode == "online":
            _require_api_key()

    def open(self, run: RunInView) -> MetricWriter:
        return _WandbRun(self, run)


class _WandbRun(MetricWriter):
    def __init__(self, tracker: WeightsAndBiases, run: RunInView) -> None:
        state, at = read_state(run, tracker.name), [tracker.entity, tracker.project]
        if state.get("at") != at:
            state = {"at": at, "id": uuid.uuid4().hex[:12], "last": {}}
        if state.get("open") and tracker.mode == "offline":
            state["last"] = {}  # the process was killed: what wandb's service had not written is lost, so repeat it
        super().__init__({str(name): int(step) for name, step in state["last"].items()})
        self.prol_run, self.state = run, state
        _SERVICE.acquire()
        with ExitStack() as on_error:
            on_error.callback(_SERVICE.release)
            self.run = self._init(tracker, str(run.folder.resolve()))
            on_error.callback(self.run.finish, exit_code=1)
            self._store(open_now=True)
            self.run.define_metric("chunk")
            self.run.define_metric("*", step_metric="chunk")
            on_error.pop_all()

    def _init(self, tracker: WeightsAndBiases, folder: str) -> Any:
        import wandb

        return wandb.init(
            project=tracker.project,
            entity=tracker.entity,
            group=tracker.group,
            mode=tracker.mode,
            dir=folder,
            id=self.state["id"],
            name=Path(folder).name,
            resume="allow",
            reinit="create_new",  # the caller may have a run open
            config={**self.prol_run.config, "folder": folder},
            settings=wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                disable_code=True,
                save_code=False,
                init_timeout=30.0,  # seconds for which the run waits for the server
                x_disable_stats=True,
            ),
        )

    def write(self, step: int, metrics: Metrics) -> None:
        # wandb's own step can only increase; a resumed run needs ours, as one of the metrics.
        self.run.log({"chunk": step, **metrics})
        self._store(open_now=True)

    def write_summary(self, step: int, metrics: Metrics) -> None:
        del step
        self.run.summary.update(dict(metrics))

    def close(self, finished: bool) -> None:
        try:
            self.run.finish(exit_code=0 if finished else 1)
            self._store(open_now=False)
        finally:
            _SERVICE.release()

    def _store(self, open_now: bool) -> None:
        write_state(self.prol_run, WeightsAndBiases.name, self.state | {"last": self.last_steps, "open": open_now})


class _WandbService:
    """Ends wandb's service process with the last tracked run of this process, unless somebody else uses it."""

    variable: ClassVar[str] = "WANDB_SERVICE"
    """Set by wandb while a service exists, also in processes that only share one."""

    def __init__(self) -> None:
        self.lock, self.runs, self.existed_before = Lock(), 0, False

    def acquire(self) -> None:
        with self.lock:
            if not self.runs:
                self.existed_before = self.variable in os.environ
            self.runs += 1

    def release(self) -> None:
        import wandb
        from wandb.sdk import wandb_setup

        with self.lock:
            self.runs -= 1
            if self.runs or self.existed_before:
                return
            # Not `wandb.run`, which ignores runs created with reinit="create_new". A version of wandb without this
            # attribute keeps its service: that costs a process, ending it could cost the caller a run.
            if getattr(wandb_setup.singleton(), "most_recent_active_run", wandb_setup) is None:
                wandb.teardown()


_SERVICE = _WandbService()


def _require_api_key() -> None:
    """On a terminal wandb would ask for a key, and the run would wait."""
    import wandb

    if not wandb.api.api_key:
        raise ValueError(
            "no API key of Weights & Biases was found: log in with `wandb login`, or track offline, WANDB_MODE=offline "
            "or --track wandb:mode=offline"
        )


class MLflow(Tracker):
    """Metrics, parameters and tags of a run. No model is uploaded; the tag `folder` says where it is.

    Args:
        uri: a tracking server (http://...), another URI that MLflow supports (databricks), or a folder;
            MLFLOW_TRACKING_URI by default, else RUN/mlflow.
        experiment: name under which the run appears.
    """

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = "prol", every: int = EVERY) -> None:
        super().__init__(every)
        self.uri, self.experiment = uri or os.environ.get("MLFLOW_TRACKING_URI"), experiment

    def open(self, run: RunInView) -> MetricWriter:
        return _MLflowRun(_tracking_uri(self.uri or str(run.folder / "mlflow")), self.experiment, run)


_TIMEOUTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DATABRICKS_ENDPOINT_HTTP_RETRY_TIMEOUT": "30",
}
"""The run waits for each request, and MLflow's defaults would retry an unreachable server for minutes."""
_MAX_PARAM = 500
"""Characters of a parameter's value that older servers accept."""


class _MLflowRun(MetricWriter):
    def __init__(self, uri: str, experiment: str, run: RunInView) -> None:
        super().__init__()
        for name, value in _TIMEOUTS.items():
            os.environ.setdefault(name, value)
        if uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # refused by default since version 3
        from mlflow import MlflowClient

        self.client, state, at = MlflowClient(tracking_uri=uri), read_state(run, MLflow.name), [uri, experiment]
        if state.get("at") != at:
            self.run_id = self._create(experiment, run)
            write_state(run, MLflow.name, {"at": at, "run_id": self.run_id})
            return
        self.run_id = str(state["run_id"])
        self.client.update_run(self.run_id, status="RUNNING")
        for name in self.client.get_run(self.run_id).data.metrics:
            self.last_steps[name] = max(one.step for one in self.client.get_metric_history(self.run_id, name))

    def _create(self, experiment: str, run: RunInView) -> str:
        from mlflow.entities import Param

        folder = run.folder.resolve()
        tags = {"folder": str(folder), "model": str(folder / "model")}
        created: Any = self.client.create_run(self._experiment_id(experiment), run_name=folder.name, tags=tags)
        settings = [Param(name, str(value)[:_MAX_PARAM]) for name, value in flat_settings(run.config).items()]
        for start in range(0, len(settings), 100):  # the limit of a request
            self.client.log_batch(created.info.run_id, params=settings[start : start + 100])
        return str(created.info.run_id)

    def _experiment_id(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:  # another run has just created it
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def write(self, step: int, metrics: Metrics) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        entities = [Metric(name, float(value), now, step) for name, value in metrics.items()]
        self.client.log_batch(self.run_id, metrics=entities)

    def close(self, finished: bool) -> None:
        self.client.set_terminated(self.run_id, status="FINISHED" if finished else "KILLED")


def _tracking_uri(text: str) -> str:
    """What MLflow accepts as a URI, unchanged; anything else is a folder. One letter and a colon is a Windows drive."""
    is_path = text.startswith("file:") or not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text)
    if "://" in text or text in ("databricks", "databricks-uc", "uc") or not is_path:
        return text
    return Path(text.removeprefix("file:")).expanduser().resolve().as_uri()


_TRACKERS: dict[str, type[Tracker]] = {kind.name: kind for kind in (TensorBoard, WeightsAndBiases, MLflow)}


def make_trackers(texts: Sequence[str], every: int = EVERY) -> list[Tracker]:
    """Trackers from texts such as `tensorboard`, `wandb:project=birds,mode=offline` or `mlflow:uri=http://host:5000`.

    They can be passed to `prol.runs.start` and `prol.runs.resume` as listeners, also in another process.
    """
    trackers: dict[str, Tracker] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        if name not in _TRACKERS:
            raise ValueError(f"unknown tracker {name!r}: use one of {', '.join(_TRACKERS)}")
        if name in trackers:
            raise ValueError(f"tracker {name} is given twice and would write every metric twice: give it once")
        kind, options = _TRACKERS[name], parse_pairs(filter(None, rest.split(",")))
        trackers[name] = kind(**bind_arguments(kind.__init__, options, reserved=("self", "every")), every=every)
    return list(trackers.values())
