"""A process that has imported everything a server needs, and forks one whenever it is asked to.

Importing takes seconds, and these tests start many servers. Each runs the command line of prol in a process of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys


def main() -> None:
    import timm  # noqa: F401
    import torch  # noqa: F401

    import prol.serve.server  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        if "arguments" in asked:
            print(fork(asked["arguments"], asked["environment"], asked["output"]), flush=True)
        else:
            ended, status = os.waitpid(asked["wait"], 0 if asked["until_it_ends"] else os.WNOHANG)
            print(os.waitstatus_to_exitcode(status) if ended else "runs", flush=True)
    os._exit(0)  # taking down what was imported would take as long as importing it


def fork(arguments: list[str], environment: dict[str, str], output: str) -> int:
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    place = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(place, 1)
    os.dup2(place, 2)
    from prol.cli.app import main as prol

    try:
        prol(arguments)
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(int(ended.code or 0))
    os._exit(1)


if __name__ == "__main__":
    main()
