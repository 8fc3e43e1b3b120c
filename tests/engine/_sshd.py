"""A real sshd of this user's on loopback, with keys and configurations of its own, all in one folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SERVER = """\
Port {port}
ListenAddress {listen}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
"""
CLIENT = """\
Host {name}
  HostName {address}
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""
UP_WITHIN_S = 20


def why_not() -> str:
    """Why there is none here; empty if there can be one."""
    missing = [name for name in ("sshd", "ssh", "ssh-keygen") if _program(name) is None]
    return f"there is no {', '.join(missing)}; on Debian: apt-get install openssh-server" if missing else ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")


def configured(folder: Path, port: int, listen: str, hosts: Mapping[str, str]) -> list[str]:
    """The command that starts one. hosts: address by name, or names, as the client's configuration has them."""
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    kind, host_key = (folder / "host_key.pub").read_text().split()[:2]
    known = [f"[{address}]:{port} {kind} {host_key}\n" for address in hosts.values()]
    (folder / "known_hosts").write_text("".join(known))
    (folder / "sshd_config").write_text(SERVER.format(folder=folder, port=port, listen=listen))
    places = {"folder": folder, "port": port, "user": getpass.getuser()}
    client = [CLIENT.format(name=name, address=address, **places) for name, address in hosts.items()]
    (folder / "ssh_config").write_text("".join(client))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's sshd wants it
    return [str(_program("sshd")), "-D", "-e", "-f", str(folder / "sshd_config")]


@contextlib.contextmanager
def sshd(folder: Path, *wrapper: str, names: str = "alpha beta", listen: str = "127.0.0.1") -> Iterator[Path]:
    """One for a while; the client's configuration, where it has these names. wrapper: a command that starts it."""
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with socket.create_server((listen, 0), family=family) as free:
        port = free.getsockname()[1]
    command = [*wrapper, *configured(folder, port, listen, {names: listen})]
    with (folder / "sshd.log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
        try:
            until = time.monotonic() + UP_WITHIN_S
            while not _answers(listen, port):
                assert server.poll() is None and time.monotonic() < until, (folder / "sshd.log").read_text()
                time.sleep(0.02)
            yield folder / "ssh_config"
        finally:
            server.terminate()


def _answers(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
