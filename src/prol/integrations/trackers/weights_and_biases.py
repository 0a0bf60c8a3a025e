"""Weights & Biases: a run of theirs for a run of ours, on their server or, offline, in the run's own folder."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar, Literal, cast

from prol.integrations.trackers.base import EVERY, Book, Tracker
from prol.integrations.trackers.memory import Memory
from prol.integrations.trackers.wandb_service import SERVICE
from prol.runs import RunInView

_STEP = "chunk"
Mode = Literal["online", "offline", "disabled"]
_LONGEST_WAIT = 30.0
"""Seconds for which a run waits for the server to begin."""


class WeightsAndBiases(Tracker):
    """Offline (`mode="offline"` or WANDB_MODE=offline) nothing leaves the machine: `wandb sync RUN/wandb/*` sends it.

    Args:
        project: where the run appears.
        entity: whose project it is; your own by default.
        mode: online or offline; as WANDB_MODE says by default, else online.
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
        self.mode = cast("Mode", mode or os.environ.get("WANDB_MODE") or "online")
        if self.mode not in ("online", "offline", "disabled"):
            raise ValueError(f"wandb mode must be online or offline, got {self.mode!r}")
        if self.mode == "online":
            _require_key()

    def open(self, run: RunInView) -> Book:
        return _Run(self, run)


class _Run(Book):
    def __init__(self, how: WeightsAndBiases, run: RunInView) -> None:
        import wandb

        self.wandb, self.memory = wandb, Memory(run.folder, how.name)
        known = self.memory.read()
        at = [how.entity, how.project]
        if known.get("at") != at:
            known = {"at": at, "id": uuid.uuid4().hex[:12], "last": {}}
        if known.get("open") and how.mode == "offline":
            known["last"] = {}  # a killed process: what their service had not written is lost, better told twice
        self.known = known | {"open": True}
        SERVICE.begin()
        with ExitStack() as undone:
            undone.callback(SERVICE.end)
            self.run = self._begin(how, run)
            undone.callback(self.run.finish, exit_code=1)
            self.memory.write(self.known)
            self.run.define_metric(_STEP)
            self.run.define_metric("*", step_metric=_STEP)
            undone.pop_all()

    def _begin(self, how: WeightsAndBiases, run: RunInView) -> Any:
        return self.wandb.init(
            project=how.project,
            entity=how.entity,
            group=how.group,
            mode=how.mode,
            dir=str(run.folder.resolve()),
            id=self.known["id"],
            name=run.folder.resolve().name,
            resume="allow",
            reinit="create_new",  # whoever calls us may have a run of their own
            config={**run.config, "folder": str(run.folder.resolve())},
            settings=self.wandb.Settings(
                console="off",
                silent=True,
                disable_git=True,
                disable_code=True,
                save_code=False,
                init_timeout=_LONGEST_WAIT,
                x_disable_stats=True,
            ),
        )

    def last_steps(self) -> dict[str, int]:
        return {str(name): int(step) for name, step in self.known["last"].items()}

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        # Their own steps only ever count up; a run that goes on has ours as one of the numbers instead.
        self.run.log({_STEP: step, **numbers})
        self.known["last"] |= dict.fromkeys(numbers, step)
        self.memory.write(self.known)

    def conclude(self, step: int, numbers: Mapping[str, float]) -> None:
        del step
        self.run.summary.update(dict(numbers))

    def close(self, finished: bool) -> None:
        try:
            self.run.finish(exit_code=0 if finished else 1)
            self.memory.write(self.known | {"open": False})
        finally:
            SERVICE.end()


def _require_key() -> None:
    """On a terminal wandb would ask for a key, and the run would wait for the answer."""
    import wandb

    if not wandb.api.api_key:
        raise ValueError(
            "no key of Weights & Biases is known here: log in with `wandb login`, or track offline, WANDB_MODE=offline "
            "or --track wandb:mode=offline"
        )
