import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from volary.lab import Lab, LabError

ENTER = "from volary.lab import Lab\nwith Lab(hosts=1): pass"


def test_a_missing_tool_is_named_with_the_package_that_has_it(monkeypatch, tmp_path):
    monkeypatch.setattr("volary.lab.needs.environment", lambda: {"PATH": str(tmp_path)})
    with pytest.raises(LabError, match=r"needs the commands ip, tc, unshare, .* iproute2 util-linux"), Lab():
        pass


def test_another_system_than_linux_is_refused_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LabError, match="Linux namespaces, and this is darwin"), Lab():
        pass


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv, to give up rights"
)
def test_a_missing_privilege_is_told_with_what_would_help():
    # root without any capability: it may neither make namespaces nor be the root of a user namespace
    bare = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    done = subprocess.run([*bare, sys.executable, "-c", ENTER], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    said = done.stderr.strip().splitlines()[-1]
    assert "this process may not make them (unshare: " in said
    assert "What would help: root; in a container, --privileged; without root, user namespaces" in said


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_somebody_without_rights_gets_a_lab_in_a_user_namespace(allowed):
    done = subprocess.run(
        [sys.executable, "-c", Path(__file__).with_name("_as_nobody.py").read_text()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "may not make them" in done.stderr:
        pytest.skip("user namespaces are switched off here")
    assert (done.returncode, done.stdout) == (0, "h1 uid 0\ntbf\n"), done.stderr
