"""The requirements of a lab on the machine, and the sentence that says what is missing and what would help."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from volary.lab.errors import LabError

TOOLS = {  # and the package that brings it
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "util-linux",
    "hostname": "hostname",
}
KERNEL = "the kernel has to offer veth, bridge and sch_tbf: `modprobe -a veth bridge sch_tbf`, as root, loads them"
_PROBE = ("--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "true")
_AS_OWN_ROOT = ("--user", "--map-root-user")
_PROBE_S = 10.0


def environment() -> dict[str, str]:
    """This process's variables, with the folders of ip and tc in PATH: a user's often lacks them."""
    folders = [folder for folder in (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin") if folder]
    return os.environ | {"PATH": os.pathsep.join(folders)}


def needs_user_namespace() -> bool:
    """Whether the lab has to be made in a user namespace, as this process may not make the others by itself.

    Raises LabError if there cannot be a lab here at all.
    """
    if sys.platform != "linux":
        raise LabError(
            f"a lab is made of Linux namespaces, and this is {sys.platform}; a virtual machine with Linux will do"
        )
    path = environment()["PATH"]
    if lacking := [tool for tool in TOOLS if shutil.which(tool, path=path) is None]:
        packages = " ".join(sorted({TOOLS[tool] for tool in lacking}))
        raise LabError(
            f"a lab needs the commands {', '.join(lacking)}, which are not installed here; "
            f"Debian and Ubuntu have them in: {packages}"
        )
    if not _refusal():
        return False
    if not (refusal := _refusal(*_AS_OWN_ROOT)):
        return True
    raise LabError(
        f"a lab needs namespaces of its own, and this process may not make them ({refusal}). What would help: root; "
        "in a container, --privileged; without root, user namespaces, which some systems switch off "
        "(user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )


def _refusal(*flags: str) -> str:
    """Why namespaces cannot be made; empty if they can."""
    probe = subprocess.run(
        ["unshare", *flags, *_PROBE],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=_PROBE_S,
        check=False,
    )
    return "" if probe.returncode == 0 else (probe.stderr.strip().splitlines() or [f"status {probe.returncode}"])[0]
