"""An `ssh` that reaches this machine under any name but those in the file `down`, and settings of the queue with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.jobs.settings import settings_file

SSH = """\
#!/bin/sh
for last; do [ "$last" = -- ] && next=1 && continue; [ "$next" ] && name=$last && next=; done
case "$*" in "-G "*) echo "hostname 127.0.0.1"; exit;; esac
if grep -qsx "$name" {down}; then echo "ssh: connect to host $name port 22: No route to host" >&2; exit 255; fi
export CUDA_VISIBLE_DEVICES={visible}
exec sh -c "$last"
"""
UNREACHED = "ssh: connect to host {name} port 22: No route to host"


def hosts(monkeypatch: pytest.MonkeyPatch, *names: str, down: str = "", visible: str = "") -> None:
    """The queue of the test has these machines. down: one that is not reached. visible: the GPUs that each has."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config").absolute()))
    ssh = Path("ssh").absolute()
    ssh.write_text(SSH.format(down=Path("down").absolute(), visible=visible))
    ssh.chmod(0o755)
    Path("down").write_text(f"{down}\n")
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text(f"hosts: [{', '.join(names)}]\nssh: {ssh}\n")
