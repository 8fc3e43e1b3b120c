"""A set of namespaces, held open by a process that ends with the lab, and how a command gets into it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from volary.lab import needs
from volary.lab.errors import LabError
from volary.lab.parent_pipe import ParentPipe

CLOSE_S = 10.0
_TOOL_S = 30.0
_MAKE = {
    "user": ("--user", "--map-root-user"),
    "net": ("--net",),
    "uts": ("--uts",),
    "ipc": ("--ipc",),
    "mount": ("--mount",),
    "pid": ("--pid", "--fork", "--kill-child", "--mount-proc"),
}
_ENTER = {
    "user": ("--user", "--preserve-credentials"),
    "net": ("--net",),
    "uts": ("--uts",),
    "ipc": ("--ipc",),
    "mount": ("--mount",),
    "pid": ("--pid=/proc/{pid}/ns/pid_for_children",),  # of the holder itself: its child is the first inside
}
# the shell, not cat, is the first process: it takes over orphans, and `wait` clears them away
_HOLD = "\necho ready\ncat <&3 >/dev/null &\nwait $!"


class Namespaces:
    """Namespaces of the given kinds (user, net, uts, ipc, mount, pid), made within those of `outer`.

    setup: a shell script that prepares them, with `arguments` as $1, $2, ... Raises LabError if they cannot be made.
    """

    def __init__(
        self,
        leash: ParentPipe,
        kinds: Sequence[str],
        setup: str = "",
        arguments: Sequence[str] = (),
        outer: Namespaces | None = None,
    ) -> None:
        make = [flag for kind in kinds for flag in _MAKE[kind]]
        script = ["sh", "-ec", f"exec 3<&0 </dev/null\n{setup}{_HOLD}", "lab", *arguments]
        self._holder = subprocess.Popen(
            (outer.command if outer else list)(["unshare", *make, *script]),
            stdin=leash.held,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=needs.environment(),
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is for the lab to answer
        )
        self._programs: list[subprocess.Popen[str]] = []
        self._kinds: tuple[str, ...] = (*(outer._kinds if outer else ()), *kinds)
        self._await_ready()

    @property
    def pid(self) -> int:
        """A process that is in these namespaces (the pid namespace apart)."""
        return self._holder.pid

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` in here; it starts in the root folder if mounts are apart.

        Where processes are apart, those that it starts are in here, and not itself.
        """
        enter = [flag.format(pid=self.pid) for kind in self._kinds for flag in _ENTER[kind]]
        return ["nsenter", "--no-fork", "--target", str(self.pid), *enter, "--", *argv]

    def batch(self, tool: str, lines: Sequence[str]) -> None:
        """Give the lines to `ip` or `tc` in here. Raises LabError with what the tool says."""
        if not lines:
            return
        done = subprocess.run(
            self.command([tool, "-batch", "-"]),
            input="\n".join(lines) + "\n",
            env=needs.environment(),
            capture_output=True,
            text=True,
            timeout=_TOOL_S,
            check=False,
        )
        if done.returncode:
            raise LabError(
                f"the lab's links cannot be made or changed: {tool}: {_at_fault(done.stderr, lines)}; {needs.KERNEL}"
            )

    def carry_on(self, argv: Sequence[str], leash: ParentPipe) -> None:
        """Run a program in here that prints "ready" once it is, until the leash is let go. Raises LabError."""
        program = subprocess.Popen(
            self.command(argv),
            stdin=leash.held,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=needs.environment(),
            text=True,
            start_new_session=True,
        )
        self._programs.append(program)
        assert program.stdout is not None and program.stderr is not None
        if program.stdout.readline() != "ready\n":
            reason = (program.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            raise LabError(f"the lab's long links cannot be made: {reason}; they need /dev/net/tun")

    def close(self) -> None:
        """Wait until nothing in here lives, once the leash is let go; after CLOSE_S it is killed."""
        try:
            self._holder.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        finally:
            assert self._holder.stdout is not None
            self._holder.stdout.close()
            for program in self._programs:
                with program:  # closes its pipes, and waits
                    program.kill()

    def _await_ready(self) -> None:
        assert self._holder.stdout is not None
        output = []
        for line in self._holder.stdout:
            if line == "ready\n":
                return
            output.append(line.strip())
        self._holder.wait()
        self._holder.stdout.close()
        reason = "; ".join(output) or f"status {self._holder.returncode}"
        raise LabError(f"the lab's namespaces ({', '.join(self._kinds)}) cannot be made: {reason}")


def _at_fault(output: str, lines: Sequence[str]) -> str:
    """The message of a tool, with the line that it is about in place of its number."""
    for part in reversed(output.split("Command failed -:")[1:]):
        number = part.split()[0].rstrip(":")
        if number.isdigit() and int(number) <= len(lines):
            return f"{output.splitlines()[0]} (in: {lines[int(number) - 1]})"
    return " ".join(output.split()) or "no reason given"
