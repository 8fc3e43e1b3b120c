"""A server's command: `python -m volary.serving`, started by Volary's driver, or by the worker that it lives beside."""

from __future__ import annotations

import os
import signal
import sys
import traceback

from volary.errors import VolaryError, WorkerFailed
from volary.placement._base import text, whole
from volary.placement._parent import die_with_parent
from volary.run.directory import RunDirectory

_STARTER = "volary"


def main() -> int:
    """Be one parameter server until the run is over; returns the exit code."""
    for notice in (signal.SIGTERM, signal.SIGINT):  # meant for the run: its roster says when servers are to end
        signal.signal(notice, signal.SIG_IGN)
    try:
        die_with_parent()
        host, _, port = text(os.environ, "VOLARY_MEET", _STARTER).rpartition(":")
        directory = RunDirectory(text(os.environ, "VOLARY_RUN", _STARTER))
        number, life = whole(os.environ, "VOLARY_SERVER", _STARTER), text(os.environ, "VOLARY_SERVER_LIFE", _STARTER)
        from volary.train.served.serve import serve

        serve(directory, number, (host, int(port)), life, os.environ.get("VOLARY_ADDRESS", "127.0.0.1"))
        return 0
    except VolaryError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code
    except Exception:  # the user's rule may raise anything
        traceback.print_exc()
        return WorkerFailed.exit_code


if __name__ == "__main__":
    sys.exit(main())
