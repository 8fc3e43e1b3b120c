"""Where a file that a solver or a network names lies: Caffe looks from the folder it is started in."""

from __future__ import annotations

from pathlib import Path


def found_from(path: str, folder: Path) -> Path | None:
    """The file or folder that `path` means: from the working directory, else from `folder` or a folder above it, and
    at last by its name alone beside the solver; None if there is none.
    """
    given = Path(path).expanduser()
    folder = folder.absolute()
    candidates = [Path.cwd() / given, *(above / given for above in (folder, *folder.parents)), folder / given.name]
    return next((one for one in candidates if one.exists()), None)
