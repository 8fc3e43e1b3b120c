"""Memory that is left: the machine's own account, and the limits of the control groups that a process is in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from volary.errors import SettingError
from volary.run.machine.memory import available_bytes, held_bytes, judge

MIB = 1 << 20


def system(files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = Path("system") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path("system")


MACHINE = {"proc/meminfo": "MemTotal: 4096 kB\nMemAvailable:  2048 kB\nSwapFree: 1024 kB\nHugePages_Total: 0\n"}


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({}, 3 * MIB),
        # version 2: a limit of the process's own group, and of one that this lies in; what is cached can be taken back
        (
            {
                "proc/self/cgroup": "0::/jobs/it\n",
                "sys/fs/cgroup/jobs/it/memory.max": "max\n",
                "sys/fs/cgroup/jobs/it/memory.current": f"{MIB}\n",
                "sys/fs/cgroup/jobs/memory.max": f"{4 * MIB}\n",
                "sys/fs/cgroup/jobs/memory.current": f"{3 * MIB}\n",
                "sys/fs/cgroup/jobs/memory.stat": f"anon 5\ninactive_file {MIB // 2}\n",
            },
            MIB + MIB // 2,
        ),
        # version 1
        (
            {
                "proc/self/cgroup": "5:cpu:/\n4:memory,hugetlb:/it\n0::/\n",
                "sys/fs/cgroup/memory/it/memory.limit_in_bytes": f"{2 * MIB}\n",
                "sys/fs/cgroup/memory/it/memory.usage_in_bytes": f"{MIB}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{MIB}\n",
            },
            MIB,
        ),
        # a container sees the host's path, and its own files at the root
        (
            {
                "proc/self/cgroup": "0::/host/path\n",
                "sys/fs/cgroup/memory.max": f"{MIB}\n",
                "sys/fs/cgroup/memory.current": f"{2 * MIB}\n",
            },
            0,
        ),
    ],
)
def test_the_least_that_machine_and_groups_leave_is_available(files, left):
    assert available_bytes(system(MACHINE | files)) == left


def test_what_a_process_and_all_below_it_hold_is_counted_and_what_they_share_once():
    def process(pid: int, pss_kib: int, children: str) -> dict[str, str]:
        rollup = (
            f"55cdb000-7ffe000 ---p 00000000 00:00 0  [rollup]\nRss:  9000 kB\nPss:  {pss_kib} kB\nPss_Anon: 1 kB\n"
        )
        return {f"proc/{pid}/smaps_rollup": rollup, f"proc/{pid}/task/{pid}/children": children}

    assert held_bytes(10, system(process(10, 100, "11 12 ") | process(11, 20, "") | process(12, 3, ""))) == 123 << 10
    assert held_bytes(13, system({})) is None
    assert (held_bytes(os.getpid()) or 0) > MIB


def test_this_machine_says_what_it_has():
    assert (available_bytes() or 0) > MIB


def test_what_is_tight_is_a_sentence_and_what_clearly_does_not_fit_is_refused():
    gib = 1024 * MIB
    assert judge(3 * gib, 4 * gib, "it takes", "less") is None
    assert judge(5 * gib, 4 * gib, "it takes", "less") == (
        "it takes about 5.0 GiB of memory, and 4.0 GiB are available"
    )
    with pytest.raises(SettingError, match=r"it takes about 6.0 GiB of memory, and 4.0 GiB .* accepted: less"):
        judge(6 * gib, 4 * gib, "it takes", "less")
    assert judge(6 * gib, None, "it takes", "less") is None
