"""Runs in a store that fsspec reaches (s3://, hdfs://): what their networks are made of, here for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volary.data.storage.place import located
from volary.errors import RunError

_CHECKPOINTS = "checkpoints/"


@contextmanager
def local_run(run: str | Path, step: int | None) -> Iterator[str | Path]:
    """The run itself; of one in a store a copy, with the checkpoint of `step` or the newest and without logs.

    Raises RunError if there is none, SettingError for a store that nothing here can read, and OSError.
    """
    remote = located(run)
    if isinstance(remote, Path):
        yield run
        return
    files = [name for name in remote.files() if not name.startswith("logs/")]
    if "session.yaml" not in files:
        raise RunError(f"{run}: there is no run; accepted: the folder of one, with its session.yaml")
    wanted = _checkpoint(files, step)
    with tempfile.TemporaryDirectory(prefix="volary-run-") as folder:
        here = Path(folder, remote.name)
        for name in files:
            if not name.startswith(_CHECKPOINTS) or name.startswith(f"{wanted}/"):
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                (remote / name).download(here / name)
        (here / _CHECKPOINTS).mkdir(exist_ok=True)
        yield here


def _checkpoint(files: list[str], step: int | None) -> str:
    """The folder of a step's checkpoint, or of the newest; "" if there is no such."""
    folders = {name.rpartition("/")[0] for name in files if name.startswith(f"{_CHECKPOINTS}step-")}
    steps = {int(folder.rpartition("-")[2]): folder for folder in folders if folder.rpartition("-")[2].isdecimal()}
    return steps.get(max(steps, default=0) if step is None else step, "")
