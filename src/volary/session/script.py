"""A run of a user's own training loop, a function or a whole program, in the form that a run directory keeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from volary.errors import SettingError
from volary.errors.raised import raised
from volary.session.fitting.abilities import fit
from volary.session.fitting.own_loop import of_own_loop
from volary.session.reading.choice import Choice
from volary.session.reading.read import read, read_from
from volary.session.reading.settle import settle
from volary.session.resolved import to_yaml
from volary.session.spec import LoopCheckpoint, RunSettings, Session, Strategy
from volary.session.values.period import EVERY_20_STEPS, EVERY_100_STEPS, Period
from volary.session.values.reference import UserObject
from volary.session.values.source_file import refuse_uncompilable

SOURCE = "function.py"  # in the run's directory: a function that was defined in a notebook
MODULE = "-m "  # a program that is a module is written so, as on Python's command line


def is_own_loop(path: Path) -> bool:
    """Whether a run directory's session file describes a loop of one's own, and no session."""
    return path.read_text(encoding="utf-8").startswith(("function:", "program:"))


@dataclass(frozen=True, kw_only=True)
class Script:
    """A training function or a program, and how it is distributed. Sections may be given as mappings."""

    function: str = ""  # the function train(worker), as "package.module:name" or "path/file.py:name"
    program: str = ""  # or a program that calls volary.init(): "path/train.py", or "-m package.module"
    arguments: list[str] = field(default_factory=list)  # of the program; what the file of a function reads, too
    network: str = ""  # what makes the model that is saved as `model`, called without arguments: "path/file.py:Net"
    strategy: Strategy = field(default_factory=Strategy)
    seed: int = 1  # of a function's everything random, set before it is called; a program seeds itself
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: cuda if every worker can have a device, else cpu
    early_update: bool = False  # nothing between backward() and the next forward looks at gradients or parameters
    compare_replicas: Period = EVERY_100_STEPS  # how often replicas that must be equal are compared
    histograms: Period = (
        EVERY_20_STEPS  # how often weights, gradients, updates are looked at; in 0.5 % of the time at most
    )
    checkpoint: LoopCheckpoint = field(default_factory=LoopCheckpoint)
    engine: Annotated[Any, Choice("volary.engine")] = "local"  # who starts the workers
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        settle(self)
        if bool(self.function) == bool(self.program):
            raise SettingError(f"function is {self.function!r} and program {self.program!r}; accepted: one of them")
        if self.network:  # named as in the folder that one is in; the run finds it from any
            object.__setattr__(self, "network", self._network(Path.cwd()).reference)
        if not 0 <= self.seed < 2**63:
            raise SettingError(f"seed is {self.seed}; accepted: a whole number from 0 to 2**63 - 1")
        if self.program and self.seed != Script.seed:
            raise SettingError(
                f"seed is {self.seed}, and a program seeds its generators itself; accepted: torch.manual_seed in it"
            )
        fit(self.strategy, of_own_loop(self.strategy, early_update=self.early_update))

    @classmethod
    def read(cls, path: Path, overrides: Sequence[str] = ()) -> Script:
        """The script that a run directory's session file describes, with settings as `engine=NAME`."""
        return read(cls, path, overrides)

    @classmethod
    def of_program(cls, program: str, arguments: Sequence[str], overrides: Sequence[str] = ()) -> Script:
        """A program with its arguments, and settings as `strategy.workers=4`. Raises SessionError for what is wrong."""
        if not program.startswith(MODULE):
            program = str(Path(program).absolute())
        return read_from(cls, {"program": program, "arguments": list(arguments)}, overrides)

    def to_yaml(self) -> str:
        """Every setting with its value; reading it gives an equal script."""
        unused = "program" if self.function else "function"
        return "".join(line for line in to_yaml(self).splitlines(True) if not line.startswith(f"{unused}:"))

    @property
    def module(self) -> str:
        """The module that the program is; empty if it is a file."""
        return self.program.removeprefix(MODULE) if self.program.startswith(MODULE) else ""

    @property
    def name(self) -> str:
        """The name of a run of it, before its number, unless it has a name."""
        if self.function:
            return self.function.partition(" in ")[0].rpartition(":")[2].replace(".", "-").lower()
        last = self.module.removesuffix(".__main__").rpartition(".")[2]
        return re.sub(r"[^A-Za-z0-9_-]+", "-", last or Path(self.program).stem).strip("-_").lower() or "program"

    def check(self) -> None:
        """Look whether the function or program is there and can be compiled, and the network. Raises SettingError."""
        if self.network:
            self._network(Path.cwd()).check()
        if self.function:
            if not self.function.startswith(f"{SOURCE}:"):
                self.named(Path.cwd()).check()
        elif self.module:
            spec = _spec_of(self.module)
            if spec is None:
                raise SettingError(f"no module {self.module!r}; looked in {Path.cwd()} and the installed packages")
            if spec.has_location and str(spec.origin).endswith(".py"):
                refuse_uncompilable(Path(str(spec.origin)))
        elif not Path(self.program).is_file():
            raise SettingError(f"{self.program}: no such file; accepted: a Python program, or -m and a module")
        else:
            refuse_uncompilable(Path(self.program))

    def _network(self, folder: Path) -> UserObject:
        try:
            return UserObject.found_from(self.network, folder, {})
        except SettingError as error:
            raise SettingError(f"network {error}") from None

    def new_network(self) -> Any:
        """The network, fresh: a torch module. Raises SettingError if it cannot be made, or none is named."""
        if not self.network:
            raise SettingError(
                "no network is named; accepted: network=path/file.py:Net, which is called without arguments"
            )
        named = self._network(Path.cwd())
        factory = named.load()
        try:
            return factory()
        except Exception as error:  # the user's code may raise anything
            raise SettingError(
                f"network {named.name}: {raised(error).error}; it is called without arguments"
            ) from error

    def to_measure(self, overrides: Sequence[str]) -> Session:
        """A session that measures the network, with what else it needs from `overrides`. Raises SettingError."""
        network = {"network": self.network} if self.network else {}
        named = {*network, *(override.partition("=")[0].partition(".")[0] for override in overrides)}
        if missing := [name for name in ("network", "data.source") if name.partition(".")[0] not in named]:
            raise SettingError(
                "the run is one of a training loop of your own, whose data and loss are in its code; accepted: "
                f"{'=..., '.join(missing)}=... as in a session, and loss=... unless it is cross_entropy"
            )
        return read_from(Session, network, overrides)

    def to_predict(self, overrides: Sequence[str]) -> Session:
        """A session that predicts with the network. Raises SettingError if none is named.

        Unless `overrides` say more, rows of arrays are given to the network as they are, and its outputs are numbers.
        """
        named = {override.partition("=")[0].partition(".")[0] for override in overrides}
        if not self.network and "network" not in named:
            raise SettingError(
                "the run is one of a training loop of your own, which does not say what makes its network; accepted: "
                "network=path/file.py:Net, which is called without arguments"
            )
        network = {"network": self.network} if self.network else {}
        settings = {"data": {"source": {"name": "arrays", "folder": "."}}, "loss": "mse"}
        return read_from(Session, network | settings, overrides)

    def named(self, folder: Path) -> UserObject:
        """The training function, of a run in `folder`."""
        return UserObject.found_from(self.function, folder, {})


def _spec_of(module: str) -> ModuleSpec | None:
    """The module that Python's -m would run; only its packages are imported to find it. None: there is no such module.

    Raises SettingError if they cannot be imported.
    """
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        spec = find_spec(module)
        return find_spec(f"{module}.__main__") if spec is not None and spec.submodule_search_locations else spec
    except ModuleNotFoundError:
        return None
    except Exception as error:  # user code may raise anything at import
        raise SettingError(f"-m {module}: its package cannot be imported: {raised(error).sentence}") from error
    finally:
        sys.path.remove(folder)
