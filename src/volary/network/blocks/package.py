"""Networks that other packages make, by their names there: each package is an extra of Volary's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec

from volary.errors import SettingError


@dataclass(frozen=True)
class PackagedNetwork:
    """A network called `model` by `package`."""

    package: str
    model: str

    def check(self) -> None:
        """Look for the package, without importing it. Raises SettingError if it is not installed."""
        if find_spec(self.package) is None:
            raise SettingError(
                f"{self.package}:{self.model} needs {self.package}, which is not installed; accepted: pip install "
                f"'volary[{self.package}]' first"
            )

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raise SettingError, with the nearest names, for a model that is none of those of its package."""
        names = list(known)
        if self.model.partition(".")[0] not in names:  # timm has the weights that go with it behind a dot
            near = ", ".join(get_close_matches(self.model, names, n=3)) or "none is like it"
            raise SettingError(f"model is {self.model!r}, which {self.package} does not have; nearest: {near}")
