"""`python -m costar_cli`, and the `costar` command: signals are told in order from the first import on."""

import os
import sys

from costar_cli.errors import CostarError, Termination


def run() -> int:
    """Run the command line and return its exit code."""
    _open_what_is_closed()
    with Termination() as termination:
        try:
            from costar_cli.app import main  # noqa: PLC0415 - it takes a second, in which a signal may come

            termination.stop_if_signalled()
            return main()
        except (KeyboardInterrupt, Exception) as error:
            if termination.came is None and not isinstance(error, KeyboardInterrupt):
                raise
            return _tell(termination.as_error(""))  # libraries wrap what a signal's handler raises


def _open_what_is_closed() -> None:
    """Let a stdin, stdout or stderr that the shell has closed lead nowhere: no file must get its number."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w", encoding="utf-8"))


def _tell(error: CostarError) -> int:
    from costar_cli.ui.output import Output  # noqa: PLC0415

    Output(json="--json" in sys.argv).fail(error, status="interrupted")
    return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(run())
