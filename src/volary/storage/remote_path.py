"""A file or folder in a store, with those methods of `pathlib.Path` that are asked for. Every call is retried."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple, TypeVar, overload

import fsspec

from volary.errors import DataError, SettingError
from volary.storage.retrying import RETRIES

T = TypeVar("T")
BUFFER_BYTES = 64 * 2**10  # that an open file reads at once, unless it is told
PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs", "http": "aiohttp", "https": "aiohttp", "hdfs": "hdfs-native"}
_WITHOUT_LISTINGS = ("hdfs",)  # no listings are kept of these, and hdfs-native takes any option for one of Hadoop's


class ByteRange(NamedTuple):
    """Bytes of a file: from `start` to before `end`; both None: the whole file."""

    path: RemotePath
    start: int | None = None
    end: int | None = None


class FileInfo(NamedTuple):
    """A file in a listing. version: changes with its content, as far as the store says."""

    size: int
    version: str


class Stat(NamedTuple):
    """The attributes of `os.stat` that a store has."""

    st_size: int


@dataclass(frozen=True, eq=False)
class RemotePath:
    """store: fsspec's file system. key: the path in it. url: what messages call it."""

    store: Any
    key: str
    url: str

    @classmethod
    def of(cls, url: str, *, changes: bool = False) -> RemotePath:
        """The file or folder with this URL. Raises SettingError if nothing here can read such URLs.

        changes: others write there meanwhile, so that no listing is kept.
        """
        scheme = url.partition("://")[0]
        package = PACKAGES.get(scheme, scheme)
        options = {"use_listings_cache": False} if changes and scheme not in _WITHOUT_LISTINGS else {}
        try:
            store, key = fsspec.url_to_fs(url, **options)
        except ImportError as problem:
            raise SettingError(
                f"{url}: {package} is not installed ({problem}); accepted: pip install it first"
            ) from None
        except OSError as problem:  # a library that lacks another one, as pyarrow without Hadoop's
            reason = next(iter(str(problem).splitlines()), type(problem).__name__)
            raise SettingError(
                f"{url}: {reason}; accepted: what reads it, as {package}, with all that it needs"
            ) from None
        except ValueError as problem:
            raise SettingError(f"{url}: {problem}; accepted: s3://, hdfs://, https://, file:// and such") from None
        return cls(store, key.rstrip("/"), url.rstrip("/"))

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.store, f"{self.key}/{name}", f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The ending of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.store, self.key.rpartition("/")[0], self.url.rpartition("/")[0])

    def exists(self) -> bool:
        return bool(self._ask(lambda: self.store.exists(self.key)))

    def is_file(self) -> bool:
        return bool(self._ask(lambda: self.store.isfile(self.key)))

    def is_dir(self) -> bool:
        """Whether it is a folder, or the beginning of other keys."""
        return bool(self._ask(lambda: self.store.isdir(self.key)))

    def stat(self) -> Stat:
        """Ask the store for its size. Raises DataError if it does not say."""
        size = self._ask(lambda: self.store.size(self.key))
        if size is None:
            raise DataError(f"{self}: the server does not say how large it is; accepted: a server that does")
        return Stat(int(size))

    def iterdir(self) -> Iterator[RemotePath]:
        for key in sorted(self._ask(lambda: self.store.ls(self.key, detail=False))):
            if key.rstrip("/") != self.key:
                yield self / key.rstrip("/").rpartition("/")[2]

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Find what is in the folder and has such a name. The pattern has no slash."""
        return (one for one in self.iterdir() if fnmatch(one.name, pattern))

    def version(self) -> str:
        """The store's version of the file, which changes with it."""
        return _version(self._ask(lambda: self.store.info(self.key)))

    def files(self) -> dict[str, FileInfo]:
        """All files below the folder, by the path from here."""
        found = self._ask(lambda: self.store.find(self.key, detail=True))
        start = len(self.key) + 1
        return {
            key[start:]: FileInfo(int(info.get("size") or 0), _version(info)) for key, info in sorted(found.items())
        }

    def read_bytes(self) -> bytes:
        """The whole file. Raises OSError if the store does not give it."""
        return self.read(None, None)

    def read(self, start: int | None, end: int | None) -> bytes:
        """Bytes `start` to before `end`; fewer where the file ends."""
        if start is not None and end is not None and end <= start:
            return b""
        return _within(self._ask(lambda: self.store.cat_file(self.key, start=start, end=end)), start, end)

    def write_bytes(self, data: bytes) -> None:
        """Make it a file with this content. Raises OSError, also if the store then has another size of it."""
        self._write(lambda: self.store.pipe_file(self.key, data), len(data))

    def upload(self, path: Path) -> None:
        """Make it a copy of a file on this machine. Raises as `write_bytes`."""
        self._write(lambda: self.store.put_file(str(path), self.key), path.stat().st_size)

    def download(self, path: Path) -> None:
        """Copy the file to `path` on this machine. Raises OSError."""
        self._ask(lambda: self.store.get_file(self.key, str(path)))

    def copy(self, other: RemotePath) -> None:
        """Have the file there, too; it does not come here on the way. Raises OSError."""
        self._ask(lambda: self.store.cp_file(self.key, other.key))

    def remove(self) -> None:
        """Remove the file, or all that is below the folder; what is not there is fine. Raises OSError."""
        with suppress(FileNotFoundError):
            self._ask(lambda: self.store.rm(self.key, recursive=True))

    @overload
    def open(self, mode: Literal["rb"], buffering: int = ...) -> IO[bytes]: ...
    @overload
    def open(
        self,
        mode: str = ...,
        buffering: int = ...,
        encoding: str | None = ...,
        errors: str | None = ...,
        newline: str | None = ...,
    ) -> IO[Any]: ...
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """The file, for reading. buffering: bytes that are read at once."""
        raw = io.BufferedReader(RemoteFile(self), buffering if buffering > 1 else BUFFER_BYTES)
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding, errors, newline)

    def _write(self, work: Callable[[], object], size_bytes: int) -> None:
        def attempt() -> None:
            work()
            if (found := self.store.size(self.key)) != size_bytes:
                raise OSError(f"the store has {found} of {size_bytes} bytes")

        self._ask(attempt)

    def _ask(self, attempt: Callable[[], T]) -> T:
        return RETRIES.call(str(self), attempt)


class RemoteFile(io.RawIOBase):
    """A file that is read piece by piece."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._place, self._size = path, 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        """The next bytes, up to the size of the buffer."""
        end = min(self._place + len(buffer), self._size)
        if end <= self._place:
            return 0
        content = self._path.read(self._place, end)
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def _version(info: Mapping[str, Any]) -> str:
    """Stores call it differently: a checksum, else a time."""
    names = ("ETag", "etag", "checksum", "LastModified", "last_modified", "mtime", "modified", "created")
    return str(next((info[name] for name in names if info.get(name)), ""))


def read_all(spans: Sequence[ByteRange]) -> list[bytes]:
    """Read all of them, asked for at once. One that fails is asked for again by itself."""
    if not spans:
        return []
    store = spans[0].path.store
    try:
        found = store.cat_ranges(
            [span.path.key for span in spans],
            [span.start for span in spans],
            [span.end for span in spans],
            on_error="return",
        )
    except Exception:  # some libraries' own cat_ranges do not know of None
        found = [None] * len(spans)
    return [_received(content, span) for content, span in zip(found, spans, strict=True)]


def _received(content: Any, span: ByteRange) -> bytes:
    if isinstance(content, (bytes, bytearray, memoryview)):
        return _within(content, span.start, span.end)
    if isinstance(content, Exception):
        RETRIES.failed(str(span.path), content, 0.0)
    return span.path.read(span.start, span.end)


def _within(content: bytes | bytearray | memoryview, start: int | None, end: int | None) -> bytes:
    """Cut out what was asked for: simple web servers give the whole file for any part."""
    if start is not None and end is not None and len(content) > end - start:
        return bytes(content[start:end])
    return bytes(content)
