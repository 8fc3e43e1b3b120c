"""Finds the control group of a process, and how many processes in it the kernel has ended for want of memory.

The kernel counts a victim in its own group, whoever ran out: this group, one above it or the machine. A counter of the
whole machine would blame memory for a process that somebody killed while a stranger's ran out.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
COUNTERS = ("memory.events.local", "memory.events", "memory.oom_control")  # version 2, older ones of it, version 1


def counter(pid: int, proc: Path = PROC) -> Path | None:
    """The file with the count, of the control group that the process is in now; None where there is none."""
    with suppress(OSError, ValueError):
        groups = dict(_groups((proc / str(pid) / "cgroup").read_text()))
        for kind, root, mounted in _mounts((proc / "self" / "mountinfo").read_text()):
            if kind in groups and groups[kind].is_relative_to(root):
                folder = mounted / groups[kind].relative_to(root)
                for name in COUNTERS:
                    if (folder / name).is_file():
                        return folder / name
    return None


def kills(counter: Path | None) -> int:
    """How many of the group the kernel has ended so far; 0 where it does not count them."""
    with suppress(OSError, ValueError):
        for line in counter.read_text().splitlines() if counter else ():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _groups(text: str) -> list[tuple[str, Path]]:
    """Path by kind: `cgroup2` for version 2 (its line names no controllers), `cgroup` for version 1's memory."""
    found = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            found.append(("cgroup" if controllers else "cgroup2", Path(path)))
    return found


def _mounts(text: str) -> list[tuple[str, Path, Path]]:
    """Where such hierarchies are mounted: kind, the group that is mounted, and the place. See proc_pid_mountinfo(5)."""
    found = []
    for line in text.splitlines():
        mount, _, more = line.partition(" - ")
        kind, _, options = more.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(" ")[-1].split(",")):
            root, place = mount.split(" ")[3:5]
            found.append((kind, Path(root), Path(place)))
    return found
