"""Files that are dropped into the page: written into a folder of the user's, bounded, and never run or unpickled."""

from __future__ import annotations

import os
import re
import reprlib
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from volary.errors import BadInput
from volary.page.making.places import TABLES

FILE_BYTES = 2 * 2**30  # of one file
ALL_BYTES = 16 * 2**30  # of what is dropped at once
MOST_FILES = 200_000
SPARE_BYTES = 2**30  # that the disk keeps
DEEPEST = 4
IMAGES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".pbm", ".pgm", ".ppm", ".pnm", ".tif")
SUFFIXES = (*IMAGES, ".tiff", ".wav", *TABLES, ".npz", ".txt")
_PLAIN = re.compile(r"[^/\\\x00-\x1f\x7f]{1,120}")


@dataclass
class _Begun:
    files: int = 0
    size: int = 0


class Uploads:
    """Folders of dropped files below `folder`, each made by `begin`. What is there already is never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._begun = folder, dict[str, _Begun]()

    def begin(self, name: str) -> str:
        """Make a folder for what is dropped at once; its name: `name`, or that with a number. Raises BadInput."""
        _refuse(name)
        for number in range(1, 1000):
            found = name if number == 1 else f"{name}-{number}"
            try:
                (self.folder / found).mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise BadInput(f"{self.folder / found}: cannot be made ({error.strerror})") from None
            self._begun[found] = _Begun()
            return found
        raise BadInput(f"{self.folder / name}: is there in 999 versions; accepted: another name")

    async def receive(self, into: str, name: str, content: AsyncIterator[bytes]) -> Path:
        """Write a file into a folder that was begun; where it is. Raises BadInput for a name that is no file of data,
        for one that is there already, and beyond the bounds; then nothing of it stays.
        """
        if (begun := self._begun.get(into)) is None:
            raise BadInput(f"{reprlib.repr(into)} was not begun on this page; accepted: a folder of /api/begin")
        path = self._judged(self.folder / into, name, begun)
        part = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("xb") as file:
                async for chunk in content:
                    begun.size += len(chunk)
                    if begun.size > ALL_BYTES:
                        raise BadInput(f"{into}: more than {ALL_BYTES // 2**30} GiB at once; accepted: less")
                    await anyio.to_thread.run_sync(file.write, chunk)
            os.link(part, path)  # unlike a rename, it takes nothing's place
        except FileExistsError:
            raise BadInput(f"{reprlib.repr(name)}: is there already; accepted: another name") from None
        except OSError as error:
            raise BadInput(f"{reprlib.repr(name)}: cannot be written ({error.strerror})") from None
        finally:
            part.unlink(missing_ok=True)
        begun.files += 1
        return path

    def _judged(self, folder: Path, name: str, begun: _Begun) -> Path:
        parts = name.split("/")
        for part in parts:
            _refuse(part)
        if len(parts) > DEEPEST:
            raise BadInput(f"{reprlib.repr(name)}: {len(parts)} folders deep; accepted: up to {DEEPEST}")
        if Path(name).suffix.lower() not in SUFFIXES:
            raise BadInput(f"{reprlib.repr(name)}: is no data by its name; accepted: {', '.join(SUFFIXES)}")
        if begun.files >= MOST_FILES:
            raise BadInput(
                f"{folder.name}: more than {MOST_FILES:,} files at once; accepted: fewer, or a table of them"
            )
        if shutil.disk_usage(self.folder).free < SPARE_BYTES:
            raise BadInput(f"{self.folder}: the disk has less than {SPARE_BYTES // 2**30} GiB left; accepted: more")
        return folder.joinpath(*parts)


def _refuse(part: str) -> None:
    if not _PLAIN.fullmatch(part) or part.startswith(".") or part != part.strip() or len(part.encode()) > 240:
        raise BadInput(f"{reprlib.repr(part)} is no name of a file; accepted: up to 120 characters, none of / and \\")
