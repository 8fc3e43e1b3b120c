"""The settings of a served store, which its processes are started with; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from volary.comm.control.sealing import Security
from volary.errors import SettingError
from volary.session.checks import require
from volary.session.values.reference import UserObject

Mode: TypeAlias = Literal["sync", "async"]

MOST = 1024  # workers, and servers
DEFAULTS = {"sync": "assign", "async": "add"}
ELEMENTWISE = {
    *("SGD", "ASGD", "Rprop", "RMSprop", "Adagrad", "Adadelta"),
    *("Adam", "AdamW", "Adamax", "NAdam", "RAdam"),
}  # of torch.optim: what treats each value on its own


class Settings(Struct, frozen=True, kw_only=True):
    """See `volary.store.serve`. updater: a name, or a reference that means the same in any folder."""

    workers: int
    servers: int
    mode: Mode
    updater: str
    arguments: dict[str, Any]
    whole: bool
    security: Security

    @classmethod
    def checked(
        cls,
        workers: int,
        servers: int,
        mode: str,
        updater: str | Mapping[str, Any] | None,
        whole: bool,
        security: str,
    ) -> Settings:
        """Make settings of what the user says. Raises SettingError."""
        for name, number in (("workers", workers), ("servers", servers)):
            require(isinstance(number, int) and 1 <= number <= MOST, name, number, f"1 to {MOST}")
        require(mode in DEFAULTS, "mode", repr(mode), "'sync' or 'async'")
        accepted = get_args(Security)
        require(security in accepted, "security", repr(security), ", ".join(map(repr, accepted)))
        name, arguments = parted(DEFAULTS[mode] if updater is None else updater)
        if ":" in name:
            name = _found(name)
        return cls(
            workers=workers,
            servers=servers,
            mode=mode,  # type: ignore[arg-type]  # judged above
            updater=name,
            arguments=arguments,
            whole=whole or keeps_whole(name),
            security=security,  # type: ignore[arg-type]  # judged above
        )


def keeps_whole(updater: str) -> bool:
    """Whether an updater needs whole tensors: an optimiser whose update of a value depends on others."""
    return not (":" in updater or updater in DEFAULTS.values() or updater in ELEMENTWISE)


def parted(updater: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """An updater's name and its arguments. Raises SettingError."""
    given = {"name": updater} if isinstance(updater, str) else dict(updater)
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise SettingError(f"updater is {updater!r}; accepted: a name, or a mapping of `name` and arguments")
    try:
        msgspec.json.encode(given)
    except (TypeError, OverflowError) as problem:
        raise SettingError(
            f"updater {name!r}: {problem}; accepted as arguments: numbers, text, and lists of these"
        ) from None
    if given and (":" in name or name in DEFAULTS.values()):
        raise SettingError(f"updater {name!r} takes no arguments; accepted: for optimisers of torch.optim")
    return name, given


def _found(reference: str) -> str:
    """The same from any folder."""
    try:
        owner = UserObject.found_from(reference, Path.cwd(), {})
    except SettingError as problem:
        raise SettingError(f"updater {problem}") from None
    owner.check()
    return owner.reference
