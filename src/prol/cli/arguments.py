"""Arguments that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

_STREAM, _DATA, _CLOCK, _TRACKING = "The stream", "The data", "Data that do not wait", "Tracking"

Method = Annotated[str, typer.Argument(help="A name that `prol methods` lists.")]
DatasetName = Annotated[str, typer.Argument(help="A name that `prol datasets` lists.")]
MethodOptions = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the method, for example lr=0.05.")
]
Backbone = Annotated[
    str,
    typer.Option(
        help="auto (the method's own: builtin for most), builtin, ARCH.TAG of timm, ARCH@FILE.safetensors, ARCH@random "
        "or resnet18_cifar."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[str, typer.Option(help="auto, float32, float64 or bf16.")]
Threads = Annotated[int | None, typer.Option(help="Processor threads; as torch chooses by default.")]
Workers = Annotated[int | None, typer.Option(help="Threads that read images ahead; half of the processors by default.")]

Data = Annotated[
    str | None, typer.Option(help="Where the images are, for data that are not built in.", rich_help_panel=_DATA)
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option("-D", metavar="KEY=VALUE", help="An option of the data set; may be repeated.", rich_help_panel=_DATA),
]
Development = Annotated[
    bool,
    typer.Option(
        "--development",
        help="Learn a fifth of the training images and test on another fifth, to choose settings on.",
        rich_help_panel=_DATA,
    ),
]
LimitPerClass = Annotated[
    int | None, typer.Option(help="Most images of a class, in training and test.", rich_help_panel=_DATA)
]

Protocol = Annotated[str, typer.Option(help="How the stream is ordered; see `prol streams`.", rich_help_panel=_STREAM)]
ProtocolOptions = Annotated[
    list[str] | None,
    typer.Option(
        "-P", metavar="KEY=VALUE", help="An option of the protocol; may be repeated.", rich_help_panel=_STREAM
    ),
]
Tasks = Annotated[
    int | None, typer.Option(help="Number of tasks; the data set's usual one by default.", rich_help_panel=_STREAM)
]
ChunkSize = Annotated[int, typer.Option(help="How many samples arrive together.", rich_help_panel=_STREAM)]
Seed = Annotated[
    int,
    typer.Option(help="Drives the order of samples, initial values and augmentation.", rich_help_panel=_STREAM),
]
ClassOrder = Annotated[str, typer.Option(help="label or shuffled.", rich_help_panel=_STREAM)]
Boundaries = Annotated[
    bool | None,
    typer.Option(
        "--boundaries/--no-boundaries",
        help="Tell the learner when a task begins; as the protocol has it by default.",
        rich_help_panel=_STREAM,
        show_default=False,
    ),
]
Announce = Annotated[
    bool | None,
    typer.Option(
        "--announce/--no-announce",
        help="Tell it the task's classes then, too; it is told wherever it is told of boundaries by default.",
        rich_help_panel=_STREAM,
        show_default=False,
    ),
]

Keep = Annotated[
    int, typer.Option(help="Chunks that may wait; one more pushes out the oldest.", rich_help_panel=_CLOCK)
]
StepSeconds = Annotated[
    str | None,
    typer.Option(
        help="Seconds of a step, or the folder of a run on a clock whose times are taken; measured by default.",
        rich_help_panel=_CLOCK,
    ),
]
Rate = Annotated[
    float | None, typer.Option(help="Images a second that arrive; without it data wait.", rich_help_panel=_CLOCK)
]

Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]",
        help="tensorboard, wandb or mlflow, for example wandb:project=birds; may be repeated.",
        rich_help_panel=_TRACKING,
    ),
]
TrackEvery = Annotated[
    int, typer.Option(help="Chunks from one telling of losses to trackers to the next.", rich_help_panel=_TRACKING)
]
