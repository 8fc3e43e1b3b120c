"""A run of a user's own training loop: what `volary.launch` was told, in the form that a run directory keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from volary.errors import SettingError
from volary.session import fitting
from volary.session.reading.choice import Choice
from volary.session.reading.read import read
from volary.session.reading.settle import settle
from volary.session.reference import UserObject
from volary.session.resolved import to_yaml
from volary.session.spec import RunSettings, Strategy


@dataclass(frozen=True, kw_only=True)
class Script:
    """A training function, and how it is distributed. Sections may be given as mappings; they become objects."""

    function: str  # the function train(worker), as "package.module:name" or "path/file.py:name"
    strategy: Strategy = field(default_factory=Strategy)
    seed: int = 1  # of everything random, set before the function is called
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: cuda if every worker can have a device, else cpu
    engine: Annotated[Any, Choice("volary.engine")] = "local"  # who starts the workers
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        settle(self)
        if not 0 <= self.seed < 2**63:
            raise SettingError(f"seed is {self.seed}; accepted: a whole number from 0 to 2**63 - 1")
        fitting.fit(self.strategy, fitting.of_own_loop(self.strategy))

    @classmethod
    def read(cls, path: Path) -> Script:
        """The script that a run directory's session file describes."""
        return read(cls, path)

    def to_yaml(self) -> str:
        """Every setting with its value; reading it gives an equal script."""
        return to_yaml(self)

    def check(self) -> None:
        """Look whether the function's file or module is there. Raises SettingError if it is not."""
        self._object().check()

    def loaded(self) -> Any:
        """The training function, imported. Raises SettingError if it is not there."""
        return self._object().load()

    def _object(self) -> UserObject:
        return UserObject.found_from(self.function, Path.cwd(), {})
