"""Counts what is in a folder or an archive beside its samples, by reason."""

from __future__ import annotations

from volary.data.remarks import listed

_PLURALS = {"file": "files", "folder": "folders", "member": "members"}


class Unread:
    """Names of what is not read, by the reason."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], list[str]] = {}

    def add(self, name: str, what: str, reason: str) -> None:
        """what: "file", "folder" or "member". reason: what is said behind that: "without an ending"."""
        self._names.setdefault((what, reason), []).append(name)

    def remarks(self, where: object) -> tuple[str, ...]:
        """A sentence, or none. where: the folder or archive."""
        parts = [
            f"{len(names):,} {what if len(names) == 1 else _PLURALS[what]} {reason} ({listed([*dict.fromkeys(names)])})"
            for (what, reason), names in self._names.items()
        ]
        return (f"{where}: not read: {'; '.join(parts)}",) if parts else ()
