"""When the service process of Weights & Biases may be ended: after the last run of ours, if nobody else needs it."""

from __future__ import annotations

import os
from threading import Lock

_SERVICE = "WANDB_SERVICE"
"""Their own variable: it is there for as long as a service is, also in processes that only share one."""


class ServiceInUse:
    """Counts the runs that we have open in this process. One service is there for all of them and the caller's own."""

    def __init__(self) -> None:
        self.lock, self.ours, self.was_there = Lock(), 0, False

    def begin(self) -> None:
        """Before a run of ours is opened."""
        with self.lock:
            if not self.ours:
                self.was_there = _SERVICE in os.environ
            self.ours += 1

    def end(self) -> None:
        """After a run of ours was closed. A run that begins meanwhile waits until the service has gone."""
        import wandb

        with self.lock:
            self.ours -= 1
            if not self.ours and not self.was_there and not _somebody_has_a_run():
                wandb.teardown()


def _somebody_has_a_run() -> bool:
    """`wandb.run` does not tell: it knows nothing of runs that were made with reinit="create_new"."""
    from wandb.sdk import wandb_setup

    # A version that cannot say so keeps its service: that costs a process, ending it could cost a run.
    return getattr(wandb_setup.singleton(), "most_recent_active_run", wandb_setup) is not None


SERVICE = ServiceInUse()
