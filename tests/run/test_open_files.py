"""A process raises its own limit of open files where a run has more connections than that, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from volary.run.machine.open_files import allow_connections
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 900))
for count in (10, 200, 10**6):
    allow_connections(count)
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_the_limit_of_open_files_grows_as_far_as_it_is_needed_and_allowed():
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines() == ["300 900", "456 900", "900 900"]
