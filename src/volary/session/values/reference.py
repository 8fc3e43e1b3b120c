"""Code of the user's own, named in a session: "package.module:attr" or "path/file.py:attr"."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from volary.errors import SettingError
from volary.errors.raised import raised, shown
from volary.session.values.source_file import refuse_uncompilable, takes

USER_FILES = "volary_user."  # before the names of modules that are imported from files
MOST_NAMES = 12  # that a message lists
FORMS = "'package.module:name' or 'path/file.py:name'"
NAME = r"(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
FILE = re.compile(rf"(?P<file>.+\.py):{NAME}")
MODULE = re.compile(rf"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):{NAME}(?: in (?P<folder>.+))?")


@dataclass(frozen=True)
class UserObject:
    """Names an object in the user's code, and the keyword arguments that the session gives it.

    reference: "/abs/file.py:attr", "package.module:attr" (installed), or "package.module:attr in /abs/folder" for a
    module that was found beside the session file; all three mean the same from any working directory.
    apart: settings beside the arguments, which the object is not given.
    """

    reference: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    apart: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """The name in messages: the reference without its folder, "my_net.py:Net"."""
        if file := FILE.fullmatch(self.reference):
            return f"{Path(file['file']).name}:{file['name']}"
        return self.reference.partition(" in ")[0]

    @property
    def _written(self) -> str:
        """The reference as one writes it here, for messages of what is wrong with it."""
        file = FILE.fullmatch(self.reference)
        return f"'{shown(file['file'])}:{file['name']}'" if file else repr(self.reference)

    @classmethod
    def found_from(
        cls, reference: str, folder: Path, arguments: Mapping[str, Any], apart: Mapping[str, Any] | None = None
    ) -> UserObject:
        """Read a reference as written in `folder`. Raises SettingError if it has neither form."""
        apart = apart or {}
        if file := FILE.fullmatch(reference):
            path = (folder / Path(file["file"]).expanduser()).resolve()
            return cls(f"{path}:{file['name']}", arguments, apart)
        module = MODULE.fullmatch(reference)
        if not module:
            raise SettingError(f"is {reference!r}; accepted: {FORMS}")
        top = folder / module["module"].partition(".")[0]
        if not module["folder"] and (top.is_dir() or top.with_suffix(".py").is_file()):
            return cls(f"{reference} in {folder.resolve()}", arguments, apart)
        return cls(reference, arguments, apart)

    def check(self) -> None:
        """Look whether the file or module is there, without running it. Raises SettingError if it is not.

        A file must also be one that Python compiles.
        """
        if file := FILE.fullmatch(self.reference):
            if not Path(file["file"]).is_file():
                raise SettingError(f"{shown(file['file'])}: no such file (named as {self._written})")
            refuse_uncompilable(Path(file["file"]))
            return
        top = self._module()["module"].partition(".")[0]
        if top not in sys.modules and find_spec(top) is None:
            raise SettingError(self._missing(top))

    def takes(self, parameter: str) -> bool | None:
        """Whether it is a function of a file, and takes this parameter; None: that is not seen without running it."""
        file = FILE.fullmatch(self.reference)
        return takes(Path(file["file"]), file["name"], parameter) if file else None

    def load(self) -> Any:
        """Import and return the object. Raises SettingError if its file, module or name is missing or broken."""
        self.check()
        if file := FILE.fullmatch(self.reference):
            return self._attribute(self._guarded(lambda: import_file(Path(file["file"]))), file["name"])
        found = self._module()
        return self._attribute(self._guarded(lambda: import_module(found["module"])), found["name"])

    def _module(self) -> re.Match[str]:
        found = MODULE.fullmatch(self.reference)
        if not found:
            raise SettingError(f"{self.reference!r} names no object; accepted: {FORMS}")
        if found["folder"]:
            importable(Path(found["folder"]))
        return found

    def _guarded(self, load: Any) -> ModuleType:
        """Import what `load` does; an exception of the user's code becomes one sentence."""
        try:
            module: ModuleType = load()
            return module
        except ModuleNotFoundError as error:
            raise SettingError(self._missing(error.name or "?")) from error
        except Exception as error:  # user code may raise anything at import
            found = raised(error)
            place = f" ({found.place})" if found.place else ""
            raise SettingError(f"importing {self._written} failed: {found.error}{place}") from error

    def _missing(self, module: str) -> str:
        folder = self.reference.partition(" in ")[2]
        looked = f"{folder} and among" if folder else "among"
        return f"no module {module!r}, wanted by {self._written}; looked {looked} the installed packages"

    def _attribute(self, value: Any, name: str) -> Any:
        for part in name.split("."):
            if not hasattr(value, part):
                raise SettingError(f"{self._written}: {_lacks(value, part)}")
            value = getattr(value, part)
        return value


def _lacks(owner: Any, name: str) -> str:
    from difflib import get_close_matches

    known = [known for known in vars(owner) if not known.startswith("_")]
    near = get_close_matches(name, known, n=1)
    if near:
        return f"has no {name!r}; did you mean {near[0]!r}?"
    if hasattr(owner, "__path__"):  # a package hands on what its modules define
        return f"has no {name!r}; nearest: {', '.join(get_close_matches(name, known, n=5, cutoff=0))}"
    # what it defines itself, not what it imports
    own = [each for each in known if getattr(vars(owner)[each], "__module__", None) == getattr(owner, "__name__", "")]
    return f"has no {name!r}" + (f"; it has: {_some(own)}" if own else "")


def names_in(file: Path) -> list[str]:
    """The classes and then the functions at the top level of a file, which is not run; none if it is damaged."""
    import ast

    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    classes = [each.name for each in body if isinstance(each, ast.ClassDef)]
    functions = [each.name for each in body if isinstance(each, ast.FunctionDef)]
    return [name for name in classes + functions if not name.startswith("_")]


def without_name(text: str, folder: Path) -> str | None:
    """Say what to write instead of `text`, which names a user's file and nothing in it; None if it names none."""
    path = Path(text).expanduser()
    for candidate in (path, path.with_name(f"{path.name}.py")) if path.name else ():
        file = folder / candidate
        if candidate.suffix == ".py" and file.is_file():
            names = names_in(file)
            found = f" (found: {_some(names)})" if names else ""
            write = f"{candidate}:{names[0] if names else 'Name'}"
            return f"is the file {candidate}; name the class or function in it: {write}{found}"
    if path.suffix == ".py":
        return f"is {text!r}, and there is no such file in {folder}; accepted: {FORMS}"
    return None


def _some(names: list[str]) -> str:
    """A list that stays a line."""
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def importable(folder: Path) -> None:
    """Let modules in `folder` be imported, before others of the same name."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def import_file(path: Path) -> ModuleType:
    """Import a file as a module of its own, once; it may import what is beside it.

    Raises SettingError if it cannot be imported.
    """
    name = USER_FILES + re.sub(r"\W", "_", str(path.with_suffix("")))
    if name in sys.modules:
        return sys.modules[name]
    importable(path.parent)
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SettingError(f"{path}: cannot be imported")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def name_of(setting: Any) -> str:
    """The name of a network, a loss or a source in messages: the plug-in's name, or the user's "my_net.py:Net"."""
    return setting.name if isinstance(setting, UserObject) else type(setting).__module__.rpartition(".")[2]
