"""Before the first step all ranks compare code, settings, versions and shapes: a difference is a table, not a crash."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import volary
from volary.errors import RanksDiffer
from volary.run.environment import versions
from volary.session.reference import FILE, MODULE

if TYPE_CHECKING:
    from torch import nn

    from volary.session.reference import UserObject
    from volary.train.bulletin import Bulletin

Facts = dict[str, str]


def code_facts(user_objects: Mapping[str, UserObject]) -> Facts:
    """Versions, and a digest of Volary's code and of each file that defines one of the user's objects."""
    facts = {f"version of {name}": version for name, version in versions().items()}
    facts["byte order"] = sys.byteorder
    facts["code of volary"] = _digest(sorted(Path(volary.__file__).parent.rglob("*.py")))
    return facts | {f"code of {name}": _digest(_files(one)) for name, one in user_objects.items()}


def setting_facts(resolved: Mapping[str, object]) -> Facts:
    """One fact for each setting of a resolved session, by dotted name."""
    return {f"setting {name}": str(value) for name, value in resolved.items()}


def shape_facts(module: nn.Module) -> Facts:
    """One fact for each parameter: its shape and type, and whether it is trained."""
    return {
        f"parameter {name}": f"{tuple(p.shape)} {str(p.dtype).removeprefix('torch.')}"
        + ("" if p.requires_grad else " frozen")
        for name, p in module.named_parameters()
    }


def compare(bulletin: Bulletin, topic: str, facts: Facts) -> None:
    """Raise RanksDiffer, with a table of who differs in what, unless all ranks give the same facts."""
    everybody: list[Facts] = bulletin.share(topic, facts)
    names = dict.fromkeys(name for one in everybody for name in one)
    different = [name for name in names if len({one.get(name, "absent") for one in everybody}) > 1]
    if different:
        raise RanksDiffer(_table(different, everybody))


def _table(names: list[str], everybody: list[Facts], most: int = 12) -> str:
    lines = ["ranks differ, so nothing was started:"]
    for name in names[:most]:
        groups: dict[str, list[str]] = {}
        for rank, facts in enumerate(everybody):
            groups.setdefault(facts.get(name, "absent"), []).append(str(rank))
        said = "; ".join(f"rank {', '.join(ranks)}: {value}" for value, ranks in groups.items())
        lines.append(f"  {name}: {said}")
    if len(names) > most:
        lines.append(f"  and {len(names) - most} more")
    return "\n".join(lines)


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
