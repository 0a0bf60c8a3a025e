"""The command `prol`: its verbs, and how mistakes are reported."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from prol import __version__
from prol.cli.bench import app as bench
from prol.cli.check import check
from prol.cli.classes import app as classes
from prol.cli.compare import compare
from prol.cli.inspect import datasets, methods, params, show
from prol.cli.learn import learn
from prol.cli.models import audit, export, merge, onnx, predict, pull, push
from prol.cli.report import report
from prol.cli.reproduce import reproduce
from prol.cli.run import rate_curve, resume, run
from prol.cli.serve import serve
from prol.cli.streams import streams
from prol.cli.sweep import sweep

# Typer carries its own copy of click or uses the installed one, depending on its version.
ParsingError: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    name="prol",
    help="Learn an image classifier from a stream in one pass, store no sample, predict at any moment.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
running, saved = (run, resume, show, check), (learn, export, predict, serve, audit, merge, onnx, push, pull)
for verb in (*running, *saved, compare, sweep, report, reproduce, rate_curve, params, methods, datasets, streams):
    app.command()(verb)
app.add_typer(bench, name="bench")
app.add_typer(classes, name="classes")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"prol {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    del version


def main(arguments: list[str] | None = None) -> None:
    """The entry point: bad input ends with one line and exit code 2; PROL_DEBUG=1 raises it instead."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=given or ["--help"], prog_name="prol", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except ParsingError as error:
        code = _complain(_wrong_value(error, given) or f"{error.format_message()} (see prol --help)", BAD_INPUT)
    except BrokenPipeError:
        # The reader of the output is gone; nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (ValueError, OSError) as error:
        if os.environ.get("PROL_DEBUG") == "1":
            raise
        code = _complain(str(error), BAD_INPUT)
    if code == INTERRUPTED:  # typer's newer versions return it, older ones raise
        _complain("interrupted; `prol resume RUN` resumes an unfinished run", INTERRUPTED)
    sys.exit(code)


def _wrong_value(error: Any, given: list[str]) -> str | None:
    """Which flag needs a number and what it was given instead; None for any other mistake."""
    text, flags = error.format_message().lower(), getattr(getattr(error, "param", None), "opts", [])
    # typer's versions say it in different words, and most of them without the value.
    kind = "a whole number" if "integer" in text else "a number" if "number" in text or "float" in text else None
    for place, word in enumerate(given):
        flag, equals, value = word.partition("=")
        if flag in flags and kind is not None:
            return f"{flag} must be {kind}, got {value if equals else (given[place + 1 :] or [''])[0]!r}"
    return None


def _complain(message: str, code: int) -> int:
    print(f"prol: {' '.join(message.split())}", file=sys.stderr)
    return code
