"""The run's directory for a process that does not see it: a folder here stands for it, and files are sent home."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Self

from volary.comm.files.client import FileClient
from volary.comm.files.messages import GIVEN, Role
from volary.errors import RunError
from volary.run.checkpoints import MANIFEST, Checkpoints, Manifest, digest
from volary.run.content import Content, whole
from volary.run.directory import RunDirectory
from volary.run.launch.assignment import KEY, SCRATCH, Assignment
from volary.train.member.log_carrier import LogCarrier


class RemoteDirectory:
    """directory: the folder here, with the run's session and key. assignment: as it was given."""

    def __init__(self, assignment: Assignment, connect: Callable[[], FileClient], directory: RunDirectory) -> None:
        self.assignment, self.connect, self.directory = assignment, connect, directory
        self._client: FileClient | None = None
        self._sending = threading.Lock()
        self._log: LogCarrier | None = None

    @classmethod
    def unless_seen(cls, assignment: Assignment, role: Role, number: int) -> Self | None:
        """The run's directory, or None if this process sees it itself. Raises VolaryError if nobody answers, OSError.

        The key leaves this process's environment, which its children would inherit.
        """
        os.environ.pop(KEY, None)
        key, meeting = assignment.key, assignment.meeting
        if key is None or assignment.is_seen:
            return None

        def connect() -> FileClient:
            return FileClient.open(meeting.host, meeting.port, key, meeting.attempt_id, role, number)

        with closing(connect()) as client:
            directory = _made(role, number, assignment.directory.name, key, assignment.moved(client.session))
            for name in client.given:
                if name in GIVEN:
                    client.get_given(name, directory.path / name)
        return cls(assignment, connect, directory)

    def follow(self, log: Path) -> None:
        """Send what comes into this log, from now on."""
        self._log = LogCarrier(log, self.connect)

    def settle(self) -> None:
        """Send what the log has by now; a driver that takes none is not waited for."""
        if self._log is not None:
            self._log.settle()

    def send_result(self, data: bytes) -> None:
        """Keep what the user's function returned. Raises OSError."""
        with closing(self.connect()) as client:
            client.send("result", data, digest(data))

    def write(self, step: int, name: str, content: Content) -> str:
        """Write as `Checkpoints.write` does, to a draft that the driver has opened. Raises OSError. From any thread."""
        data = whole(content)
        checksum = digest(data)
        with self._sending:
            self._client = self._client or self.connect()
            try:
                self._client.send("draft", data, checksum, step, name)
            except OSError:
                self._client.close()
                self._client = None
                raise
        return checksum

    def fetch(self, step: int, wanted: Callable[[str], bool] = lambda _: True) -> Manifest:
        """Have those files of a checkpoint here that are wanted, by name. Raises RunError if they do not come whole."""
        checkpoints = Checkpoints(self.directory.checkpoints)
        folder = checkpoints.folder / f"step-{step:08d}"
        try:
            with closing(self.connect()) as client:
                folder.mkdir(exist_ok=True)
                client.get(step, MANIFEST, folder / MANIFEST)
                manifest = checkpoints.manifest(step)
                for name in filter(wanted, manifest.files):
                    if client.get(step, name, folder / name) != manifest.files[name]:
                        raise RunError(f"the checkpoint of step {step}: {name} did not arrive whole")
        except OSError as error:
            raise RunError(f"the checkpoint of step {step} did not come here: {error}") from None
        return manifest


def bring(
    remote: RemoteDirectory | None, checkpoints: Checkpoints, step: int, wanted: Callable[[str], bool] = lambda _: True
) -> Manifest:
    """Have those files of a checkpoint here that are wanted, by name, wherever they are. Raises RunError."""
    if remote is None or checkpoints.in_store:
        return checkpoints.bring(step, wanted)
    return remote.fetch(step, wanted)


def writer(remote: RemoteDirectory | None, checkpoints: Checkpoints) -> Callable[[int, str, Content], str]:
    """Return the function that writes a file of a draft and returns its checksum."""
    return checkpoints.write if remote is None or checkpoints.in_store else remote.write


def _made(role: Role, number: int, name: str, key: bytes, session: str) -> RunDirectory:
    above = os.environ.get(SCRATCH)
    if above is None:
        above = tempfile.mkdtemp(prefix="volary-")
        atexit.register(shutil.rmtree, above, ignore_errors=True)
    directory = RunDirectory(Path(above, f"{role}-{number}", name))
    for folder in (directory.checkpoints, directory.logs, directory.verdicts, directory.results):
        folder.mkdir(parents=True)
    directory.session.write_text(session)
    descriptor = os.open(directory.path / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.hex())
    return directory
