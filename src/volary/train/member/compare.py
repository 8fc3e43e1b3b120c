"""Before the first step all ranks compare code, settings, versions and shapes: a difference is a table, not a crash."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import volary
from volary.data.data_names import DataNames
from volary.data.remarks import listed
from volary.errors import RanksDiffer
from volary.naming import named_parameters
from volary.run.machine.environment import versions
from volary.session.values.reference import FILE, MODULE, UserObject

if TYPE_CHECKING:
    from torch import nn

    from volary.comm.groups.group import Bulletin
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples
    from volary.session.spec import Session

Facts = dict[str, str]
MOST = 12  # differences that are told in full


def user_objects(session: Session) -> dict[str, UserObject]:
    """The user's own code that a session names, by setting."""
    named = {
        "network": session.network,
        "loss": session.loss,
        "optimizer": session.optimizer,
        "data.source": session.data.source,
        "strategy.consistency.outer": session.strategy.consistency.outer,
    }
    return {setting: value for setting, value in named.items() if isinstance(value, UserObject)}


def code_facts(own: Mapping[str, UserObject]) -> Facts:
    """Versions, and a digest of Volary's code and of each file that defines one of the user's objects."""
    return installed_facts() | {f"code of {name}": _digest(_files(one)) for name, one in own.items()}


@cache
def installed_facts() -> Facts:
    """Versions, and a digest of Volary's code: looked up once, also for those that are forked from this process."""
    facts = {f"version of {name}": version for name, version in versions().items()}
    facts["byte order"] = sys.byteorder
    facts["code of volary"] = _digest(sorted(Path(volary.__file__).parent.rglob("*.py")))
    return facts


def file_facts(program: str) -> Facts:
    """A digest of a program's file; nothing of one that is a module."""
    file = Path(program)
    return {f"code of {file.name}": _digest([file])} if file.is_file() else {}


def setting_facts(resolved: Mapping[str, object]) -> Facts:
    """One fact for each setting of a resolved session, by dotted name.

    Paths below the working directory are as seen from there: it may have another name on each machine.
    """
    here = f"{Path.cwd()}/"
    return {f"setting {name}": str(value).replace(here, "") for name, value in resolved.items()}


def shape_facts(module: nn.Module) -> Facts:
    """One fact for each parameter: its shape and type, and whether it is trained."""
    return {
        f"parameter {name}": f"{tuple(p.shape)} {str(p.dtype).removeprefix('torch.')}"
        + ("" if p.requires_grad else " frozen")
        for name, p in named_parameters(module)
    }


def data_facts(samples: Samples | Stream) -> Facts:
    """The names of classes and columns, in the order of their numbers: each machine may have a copy of the data."""
    names = DataNames.of(samples)
    shown = {"classes of the data": names.classes, "columns of the data": names.columns}
    return {
        name: f"{listed(called)} ({hashlib.sha256(repr(called).encode()).hexdigest()[:12]})"
        for name, called in shown.items()
        if called
    }


def compare(bulletin: Bulletin, topic: str, facts: Facts) -> None:
    """Raise RanksDiffer, with a table of who differs in what, unless all ranks give the same facts.

    Their hash is compared; only where that differs do all read all of them. A collective call.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    if len(set(bulletin.share(f"hash of {topic}", digest))) == 1:
        return
    everybody: list[Facts] = bulletin.share(topic, facts)
    names = dict.fromkeys(name for one in everybody for name in one)
    different = [name for name in names if len({one.get(name, "absent") for one in everybody}) > 1]
    if different:
        raise RanksDiffer(_table(different, everybody))


def compare_with_first(first: Facts, mine: Facts, rank: int) -> None:
    """Raise RanksDiffer, with a table, unless this rank's facts are those of a run's first worker."""
    names = dict.fromkeys((*first, *mine))
    different = [name for name in names if first.get(name) != mine.get(name)]
    if different:
        lines = [f"rank {rank} differs from the run's first worker, so it does not take part:"]
        lines += [
            f"  {name}: there {first.get(name, 'absent')}; here {mine.get(name, 'absent')}" for name in different[:MOST]
        ]
        raise RanksDiffer("\n".join([*lines, *_more(different)]))


def _table(names: list[str], everybody: list[Facts]) -> str:
    lines = ["ranks differ, so nothing was started:"]
    for name in names[:MOST]:
        groups: dict[str, list[str]] = {}
        for rank, facts in enumerate(everybody):
            groups.setdefault(facts.get(name, "absent"), []).append(str(rank))
        shown = "; ".join(f"rank {', '.join(ranks)}: {value}" for value, ranks in groups.items())
        lines.append(f"  {name}: {shown}")
    return "\n".join([*lines, *_more(names)])


def _more(names: list[str]) -> list[str]:
    return [f"  and {len(names) - MOST} more"] if len(names) > MOST else []


def _files(one: UserObject) -> list[Path]:
    """The file that a user's object is named in, if its module has one."""
    if file := FILE.fullmatch(one.reference):
        return [Path(file["file"])]
    one.check()  # lets a module beside the session file be found
    module = MODULE.fullmatch(one.reference)
    found = find_spec(module["module"]) if module else None
    return [Path(found.origin)] if found and found.has_location and found.origin else []


def _digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()[:12]
