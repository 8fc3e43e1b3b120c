"""One process below another that a launcher or a cluster's scheduler has started, and with which it ends.

`python -I -S child.py COMMAND...` is such a process, for launchers that end all others when one fails: to its launcher
it ends well, however COMMAND ends. Only the standard library is imported here, so that it costs next to nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

LOOK_S = 0.2


class Child:
    """A process that is started where the scheduler has a place for it.

    folder: its working directory; empty: this process's. variables: beside those of this process. log: where it prints;
    empty, or in no folder that is here: where this process does.
    """

    def __init__(self, command: Sequence[str], folder: str, variables: Mapping[str, str], log: str = "") -> None:
        self._started_by = os.getppid()
        with Path(log).open("ab") if log and Path(log).parent.is_dir() else nullcontext() as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder or None,
                env=os.environ | variables | {"VOLARY_DRIVER": str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output and subprocess.STDOUT,
            )

    def wait(self, look: Callable[[], object] = lambda: None) -> int:
        """Wait for its end; return its status. look: called again and again meanwhile.

        It is killed once the process is gone that has started this one: to the scheduler both are lost by then, and
        nobody reaches them to end them.
        """
        while os.getppid() == self._started_by:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(LOOK_S)
            look()
        return self.kill()

    def ask_to_end(self) -> None:
        """Send it a termination."""
        self._process.terminate()

    def kill(self) -> int:
        """Kill it; return its status."""
        self._process.kill()
        return self._process.wait()


def main() -> int:
    """Run the command of the command line to its end; the exit code is 0 whatever its own is."""
    # a termination is for the command, which is in the same session; nothing here is inherited by that
    signal.signal(signal.SIGTERM, lambda *_: None)
    Child(sys.argv[1:], "", {}).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
