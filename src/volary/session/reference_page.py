"""docs/session.md, written from the specification and every plug-in: `python -m volary.session.reference_page FILE`."""

from __future__ import annotations

import inspect
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from volary.session.pages.comments import comments_of
from volary.session.reading.choice import Choice
from volary.session.reading.fields import defaults_of, settings_of
from volary.session.reading.words import choice_in, in_words, is_union
from volary.session.resolved import flow, plain
from volary.session.spec import Session
from volary.session.starter import starter
from volary.session.values.period import Period

SECTIONS = (".spec", ".data_section", ".train_section")  # modules of sections, whose own first line is of all of them
HEAD = """# Session reference

<!-- Written by `python -m volary.session.reference_page docs/session.md`: change the specification, not this page. -->

A session file is YAML 1.2; what it leaves out has the default below. `volary check session.yaml` prints the whole
resolved session, `volary init` writes this file to start from:

```yaml
STARTER```

## How it is read

- **Strictly.** `true` is no number and `3` is no text; a name that is not known is an error. Every problem of the file
  and the command line is reported at once, as `file:line:column: setting: what is wrong; what is accepted`.
- **Plug-ins.** Where a table says *a name of ...*, the value is the name (`codec: none`), or a mapping of the name and
  the plug-in's own settings (`optimizer: {name: sgd, lr: 0.05}`). Without `name` the default one is meant.
- **Your own code.** Where *your own* is accepted, the name is `package.module:name` (looked for beside the session
  file, then among the installed packages) or `path/file.py:name` (relative to the session file); all other keys are its
  keyword arguments. In Python, and on the command line, both are relative to the working directory.
- **Paths** of data (*a path* in the tables) are relative to the session file, too; in Python, and on the command line
  (`data.source.folder=mnist`), to the working directory. `run.folder` is relative to the working directory, always.
- **Periods** are `500 steps`, `2 epochs` or `never`.
- **Overrides** on the command line are dotted: `volary train session.yaml optimizer.lr=0.1 strategy.workers=4`. A value
  is YAML. `optimizer=adam` or `optimizer={name: adam, lr: 0.01}` replaces the whole setting; `optimizer.name=adam`
  changes the name, and settings that the file gave for the other name are dropped. `train.steps=100` replaces
  `train.epochs`. Their order does not matter, except that of two for the same setting the later holds.
- **In Python** the same is `Session(network="lenet", data={"source": "digits"}, train={"epochs": 3})`, and
  `Session.read("session.yaml", ["optimizer.lr=0.1"])` reads a file.

Whole session files for common tasks are in [recipes.md](recipes.md).
"""


def page() -> str:
    """The page docs/session.md, as markdown."""
    parts = [HEAD.replace("STARTER", starter()), "## Session\n\n" + _table(Session)]
    choices = [("", Session)]
    for name, hint in settings_of(Session).items():
        if choice_in(hint) is None:
            parts.append(f"### {name}\n\n{_summary(hint)}\n\n{_table(hint)}")
            inside = {part: kind for part, kind in settings_of(hint).items() if _is_section(kind)}
            parts += [f"### {name}.{part}\n\n{_summary(kind)}\n\n{_table(kind)}" for part, kind in inside.items()]
            choices.append((f"{name}.", hint))
    for prefix, section in choices:
        for name, hint in settings_of(section).items():
            if choice := choice_in(hint):
                parts.append(_room(prefix + name, choice))
    return "\n".join(parts)


def _room(path: str, choice: Choice) -> str:
    room = choice.open()
    names = dict(room.aliases) | {f"{one}:NAME": room.unfolded(f"{one}:NAME") for one in room.by_prefix}
    short = "; ".join(f"`{name}` for `{flow({'name': one} | dict(of))}`" for name, (one, of) in names.items())
    names_too = f"\n\nShort names: {short}." if short else ""
    own = ", or your own" if choice.user else ""
    parts = [f"## {path}: a name of `{choice.room}`{own}\n\n{room_summary(choice)}{names_too}\n"]
    for name in room.names():
        plugin = room.load(name)
        table = _table(plugin) if settings_of(plugin) else "No settings.\n"
        parts.append(f"### {path}: {name}\n\n{_summary(plugin)}\n\n{table}")
    return "\n".join(parts)


def room_summary(choice: Choice) -> str:
    """The first sentence of the room's own description."""
    text = inspect.getdoc(sys.modules[choice.room]) or ""
    return text.partition(" Guide:")[0]


def _summary(cls: type) -> str:
    """The docstrings of the plug-in's file and of its class; for a section that of the class alone."""
    of_file = inspect.getdoc(sys.modules[cls.__module__]) if not cls.__module__.endswith(SECTIONS) else None
    return " ".join(" ".join(text.split()) for text in (of_file, inspect.getdoc(cls)) if text)


def _table(cls: type) -> str:
    notes, defaults = comments_of(cls), defaults_of(cls)
    rows = [
        f"| `{name}` | {_type(hint)} | {_default(name, hint, defaults)} | {_cell(notes.get(name, ''))} |"
        for name, hint in settings_of(cls).items()
    ]
    return "\n".join(["| setting | accepted | default | |", "|---|---|---|---|", *rows]) + "\n"


def _type(hint: Any) -> str:
    if choice := choice_in(hint):
        patterned = ", or several by pattern" if choice.open().by_pattern else ""
        return (
            f"a name of `{choice.room}`"
            + (", or your own" if choice.user else "")
            + patterned
            + (", or null" if is_union(hint) else "")
        )
    if hint is Period:
        return "a period"
    if hasattr(hint, "parse"):
        return _cell(in_words(hint))
    return "a section, see below" if _is_section(hint) else _cell(in_words(hint))


def _default(name: str, hint: Any, defaults: dict[str, Any]) -> str:
    if name not in defaults:
        return "required"
    return "" if _is_section(hint) else f"`{flow(plain(defaults[name]))}`"


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint) and not hasattr(hint, "parse")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
