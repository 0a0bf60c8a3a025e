"""Flags that several commands share, and the one place where they become plans and executors."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

if TYPE_CHECKING:
    from prol.evaluation import Clock
    from prol.integrations.trackers import Tracker
    from prol.runs import Display, Plan
    from prol.runs.executors import Executor

_STREAM, _DATA, _CLOCK, _TRACKING = "The stream", "The data", "Data that do not wait", "Tracking"
_EXECUTION, _MEASURES = "Where runs are executed", "What is measured"
_NETWORK = (
    "The network: auto (the method's default, small for most), small or tiny, which come with prol, ARCH.TAG of timm, "
    "hf-hub:OWNER/NAME, ARCH@FILE.safetensors, ARCH@random, efficientnet_lite0 or resnet18_cifar."
)

Method = Annotated[str, typer.Argument(help="A name that `prol methods` lists, or FILE.py:Class.")]
DatasetName = Annotated[str, typer.Argument(help="A name that `prol datasets` lists.")]
MethodOptions = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the method, for example lr=0.05.")
]
Saved = Annotated[Path, typer.Argument(help="A folder that `prol export` or `learner.save` wrote.")]
Backbone = Annotated[str, typer.Option(help=_NETWORK)]
ImageSize = Annotated[
    int | None,
    typer.Option(
        help="Pixels along a side of the network's input; positions are resampled. By default its own.",
        show_default=False,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        help="Where the weights are now: ARCH@FILE.safetensors, or a built-in network's file. By default as saved.",
    ),
]
SavedMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="FILE.py:CLASS",
        help="The file of the method, where it was in one: it is executed if it has not changed.",
    ),
]
Device = Annotated[str, typer.Option(help="The device: auto, cpu, cuda or cuda:N.")]
Precision = Annotated[str, typer.Option(help="The precision: auto, float32, float64 or bf16.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Processor threads. By default as torch chooses.")]
FreeThreads = Annotated[
    int | None, typer.Option(help="Processor threads. By default those that other processes leave free at the start.")
]
Workers = Annotated[int | None, typer.Option(help="Threads that read images ahead. By default half of the processors.")]
Data = Annotated[
    str | None, typer.Option(help="The path of the images, for data that are not built in.", rich_help_panel=_DATA)
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="An option of the data set. Repeatable.", rich_help_panel=_DATA),
]
ProtocolOptions = Annotated[
    list[str] | None,
    typer.Option("-P", metavar="KEY=VALUE", help="An option of the protocol. Repeatable.", rich_help_panel=_STREAM),
]
Trackers = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="Track the run with tensorboard, wandb or mlflow, for example wandb:project=birds. Repeatable.",
        rich_help_panel=_TRACKING,
    ),
]
LimitPerClass = Annotated[
    int | None,
    typer.Option(help="The maximum number of images per class, in training and test.", rich_help_panel=_DATA),
]
Tasks = Annotated[
    int | None, typer.Option(help="The number of tasks. By default the data set's usual one.", rich_help_panel=_STREAM)
]


def flag(help_text: str, panel: str | None = None, *names: str, default: Any = None, **more: Any) -> Any:
    """A field that is a flag; None leaves the choice to what is planned."""
    option = typer.Option(*names, help=help_text, rich_help_panel=panel, **more)
    return dataclasses.field(default=default, metadata={"option": option})


@dataclass(frozen=True)
class StreamFlags:
    """Data and stream of a run; what is None was not given."""

    data: Data = None
    data_options: DataOptions = None
    limit_per_class: LimitPerClass = None
    protocol: str | None = flag("The order of the stream, see `prol streams`. By default disjoint.", _STREAM)
    protocol_options: ProtocolOptions = None
    tasks: Tasks = None
    chunk: int | None = flag("How many samples arrive together. By default 10.", _STREAM)
    class_order: str | None = flag("The order of the classes: label or shuffled. By default label.", _STREAM)
    boundaries: bool | None = flag(
        "Give task boundaries to the learner. By default as the protocol does.", _STREAM, "--boundaries/--no-boundaries"
    )
    announce: bool | None = flag(
        "Also give it the classes of the task. By default wherever boundaries are given.",
        _STREAM,
        "--announce/--no-announce",
    )

    def given(self) -> dict[str, Any]:
        """The flags that were given, by their names in `Plan`."""
        from prol.options import parse_pairs

        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, words in (("data_options", "dataset_options"), ("protocol_options", "protocol_options")):
            pairs = found.pop(name)
            found[words] = parse_pairs(pairs) if pairs else None
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class PlanFlags(StreamFlags):
    """Everything of a plan but method, data set, seed and clock; what is None was not given."""

    development: bool | None = flag(
        "Train on a fifth of the training images and test on another fifth, to choose settings.",
        _DATA,
        "--development/--no-development",
    )
    backbone: str | None = flag(_NETWORK)
    image_size: ImageSize = None
    device: str | None = flag("The device: auto, cpu, cuda or cuda:N. By default auto.")
    precision: str | None = flag("The precision: auto, float32, float64 or bf16. By default auto.")
    threads: FreeThreads = None
    workers: Workers = None
    checkpoint_every: int | None = flag("Chunks between checkpoints. By default 50.")
    checkpoint_share: float | None = flag(
        "The maximum share of the time for checkpoints within tasks; they wait until then. By default 0.1."
    )
    points: int | None = flag("Test all classes so far at this many points of the stream (A_AUC).", _MEASURES)

    def given(self) -> dict[str, Any]:
        found = super().given()
        size = found.pop("image_size", None)
        if size is not None:
            found["backbone"] = sized(found.get("backbone", "auto"), size)
        return found

    def plan(self, method: str, dataset: str, options: dict[str, Any], **more: Any) -> Plan:
        """The plan of a run; `more` are further fields of `Plan`."""
        from prol.evaluation import Measures
        from prol.runs import Plan

        given = self.given()
        measures = Measures(given.pop("points", 0))
        return Plan(method, dataset, **{"options": options, "measures": measures, **given, **more})


@dataclass(frozen=True)
class ClockFlags:
    """The clock of data that do not wait."""

    queue_size: int = flag("Chunks that may wait; one more replaces the oldest.", _CLOCK, default=0)
    keep: int | None = flag("The name of --queue-size in version 0.1.", None, "--keep", hidden=True)
    step_seconds: str | None = flag(
        "Seconds per step, or the folder of a run on a clock whose times are used. By default they are measured.",
        _CLOCK,
    )

    @property
    def waiting(self) -> int:
        """How many chunks may wait, under either name."""
        return self.queue_size if self.keep is None else self.keep

    def clock(self, rate: float) -> Clock:
        """The clock of data that arrive at this many images per second."""
        from prol.evaluation import Clock
        from prol.runs.timing import read_step_seconds

        return Clock(rate, self.waiting, read_step_seconds(self.step_seconds))


@dataclass(frozen=True)
class TrackFlags:
    """Where losses and accuracies are also sent."""

    track: Trackers = None
    track_every: int = flag("The number of chunks between two reports of losses.", _TRACKING, default=10)

    def trackers(self) -> list[Tracker]:
        if not self.track:
            return []
        from prol.integrations.trackers import make_trackers

        return make_trackers(self.track, self.track_every)


@dataclass(frozen=True)
class ExecutorFlags:
    """Where runs are executed."""

    executor: str = flag("local: on this machine; ray: on a Ray cluster.", _EXECUTION, default="local")
    jobs: int | None = flag(
        "Runs at the same time, each in its own process. By default 1; with ray as many as there is room for.",
        _EXECUTION,
    )
    retries: int = flag("How often a run whose process died is resumed.", _EXECUTION, default=2)
    ray_address: str | None = flag(
        "The address of a Ray cluster, auto for that of this machine. By default one is started.", _EXECUTION
    )
    cpus_per_run: float | None = flag("Processors per run, with ray. By default 1.", _EXECUTION)
    gpus_per_run: float | None = flag(
        "GPUs per run, with ray. By default 0; 0.25 lets four runs share one.", _EXECUTION
    )
    memory_per_run: float | None = flag("Gigabytes reserved for a run, with ray.", _EXECUTION)

    def open(self, display: Display) -> Executor:
        """The executor that the flags name."""
        from prol.runs.executors import LocalProcesses, Serial

        if self.executor not in ("local", "ray"):
            raise ValueError(f"executor {self.executor!r} is not known: use local or ray")
        if self.executor == "ray":
            from prol.integrations.ray_executor import RayExecutor, require_ray

            require_ray()
            cpus = 1 if self.cpus_per_run is None else self.cpus_per_run
            gpus = self.gpus_per_run or 0
            return RayExecutor(self.ray_address, cpus, gpus, self.memory_per_run, self.retries, self.jobs)
        for name in ("ray_address", "cpus_per_run", "gpus_per_run", "memory_per_run"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for --executor ray: add that, or leave it out")
        processes = LocalProcesses(1 if self.jobs is None else self.jobs, self.retries)
        return Serial(display) if processes.jobs == 1 else processes


def sized(backbone: str, image_size: int | None) -> str:
    """The network's name for images of the size that `--image-size` gives; "auto" is the built-in one then."""
    if image_size is None:
        return backbone
    from prol.backbones import with_image_size

    return with_image_size("builtin" if backbone == "auto" else backbone, image_size)


def with_flags(function: Callable[..., None]) -> Callable[..., None]:
    """A command in which each parameter that is a dataclass of flags is replaced by those flags.

    A parameter with the name of a flag replaces that flag.
    """
    own = inspect.signature(function, eval_str=True).parameters
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in own.values():
        kind = parameter.annotation
        if not dataclasses.is_dataclass(kind):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(kind, include_extras=True)
        flags = [field for field in dataclasses.fields(kind) if field.name not in own]
        groups[parameter.name] = cast("type[Any]", kind), [field.name for field in flags]
        for field in flags:
            option = field.metadata.get("option")
            hint = hints[field.name] if option is None else Annotated[hints[field.name], option]
            parameters.append(
                inspect.Parameter(field.name, parameter.KEYWORD_ONLY, default=field.default, annotation=hint)
            )

    def command(**given: Any) -> None:
        for name, (kind, flags) in groups.items():
            given[name] = kind(**{flag: given.pop(flag) for flag in flags})
        function(**given)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def whole_numbers(option: str, text: str, least: int = 0) -> list[int]:
    """Numbers separated by commas, from the text of a command line."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise ValueError(f"{option} {text!r} is not a list of whole numbers from {least} on: write it as 10,100")
    return [int(part) for part in parts]


def read_seeds(text: str) -> list[int]:
    """Seeds, each given once."""
    seeds = whole_numbers("--seeds", text)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds {text} holds one twice: give each seed once")
    return seeds


def require_format(form: str, *known: str) -> None:
    """Refuses a `--format` that is not known."""
    if form not in known:
        raise ValueError(f"unknown format {form!r}: use {' or '.join(known)}")


def set_threads(threads: int | None) -> None:
    """Sets the processor threads of this process; None leaves them to torch."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
