"""Checks which settings may change when a run is resumed: most to anything, some not at all, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volary.session.misplaced import COMMAND_LINE
from volary.session.reading.problems import Problems
from volary.session.resolved import flat
from volary.session.script import Script
from volary.session.spec import Session
from volary.session.train_section import Freeze
from volary.session.values.reference import UserObject

_BEGUN = "its first values were read when it began"
_BATCHES = "the run counts its steps in batches of that size"
_ORDER = "it decides the order of the data, and the checkpoint is in the middle of it"
_PARTS = "it decides which samples are learnt from, and which are not"
_BEST = "the best value so far was measured with it"
FIXED = {
    "network": "the checkpoint holds the parameters of another network",
    "network.depth": "the checkpoint holds the parameters of another network",
    "network.model": "the checkpoint holds the parameters of another network",
    "network.caffe": "the checkpoint holds the parameters of another network",
    "network.stateful": _ORDER,
    "network.weights": _BEGUN,
    "network.weights.path": _BEGUN,
    "data.source": "the checkpoint holds a position in other data",
    "data.batch_size": _BATCHES,
    "data.batch": _BATCHES,
    "data.shuffle": _ORDER,
    "data.sampling.by": _ORDER,
    "data.sampling.classes": _ORDER,
    "data.folds": _PARTS,
    "data.fold": _PARTS,
    "data.split.validation": _PARTS,
    "data.split.test": _PARTS,
    "data.split.stratify": _PARTS,
    "data.split.seed": _PARTS,
    "data.split.measured": _BEST,
    "train.seed": _ORDER,
    "optimizer": "the checkpoint holds the state of another optimiser",
    "loss": _BEST,
    "loss.metric": _BEST,
}
"""By name of a setting, or of the plug-in that it chooses, what the checkpoint has to do with it."""
_PROGRAM = "the checkpoint holds what another program has saved"
FIXED_WHILE_THERE = {"strategy.consistency.outer": "the checkpoint holds the state of another outer rule"}
"""The same of settings that may be left out, or given for the first time."""
FIXED_OF_LOOP = {"function": _PROGRAM, "program": _PROGRAM, "seed": _ORDER}
"""The same of a training loop of one's own."""
FOLDER = {
    "run.name": "a run stays where it is; move or rename its folder instead",
    "run.folder": "a run stays where it is; move or rename its folder instead",
    "checkpoint.path": "a run's checkpoints stay where they are",
}
RATE = "optimizer.lr"  # what may change while a run trains


@dataclass(frozen=True)
class SettingChange:
    """A setting that has another value from now on; None where there is no such setting."""

    setting: str
    was: Any
    now: Any


def changes(before: Session | Script, after: Session | Script) -> list[SettingChange]:
    """The settings that differ, a plug-in under the name of the setting that chooses it."""
    old, new = _by_name(before), _by_name(after)
    return [
        SettingChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name) or type(old.get(name)) is not type(new.get(name))
    ]


def refuse(found: list[SettingChange], *, has_checkpoint: bool, fixed: Mapping[str, str] = FIXED) -> None:
    """Raise SessionError for all that cannot change. Before the first checkpoint that is only where the run is."""
    problems = Problems()
    for change in found:
        if change.setting in FOLDER:
            problems.add(COMMAND_LINE, change.setting, FOLDER[change.setting])
        elif has_checkpoint and (why := fixed.get(change.setting) or _why_fixed_while_there(change)):
            kept = f"accepted: {_shown(change.was)}, as before, or a new run"
            problems.add(COMMAND_LINE, change.setting, f"cannot change when a run is resumed: {why}; {kept}")
    problems.raise_if_any()


def rate_while_running(path: Path, overrides: Sequence[str]) -> float:
    """The learning rate that a run whose session is at `path` is to have, by `optimizer.lr=X`.

    Raises SessionError for what else would change, and for what cannot be read.
    """
    before = Session.read(path)
    found, problems = changes(before, Session.read(path, overrides)), Problems()
    for change in found:
        if change.setting != RATE:
            problems.add(
                COMMAND_LINE,
                change.setting,
                f"cannot change while the run trains; accepted: {RATE}, or to stop the run and resume it so",
            )
    if isinstance(before.optimizer, UserObject):
        problems.add(COMMAND_LINE, RATE, "the optimiser is your own; accepted: to stop the run and resume it")
    if not found:
        problems.add(COMMAND_LINE, RATE, f"is {before.settings().get(RATE)} already; accepted: another value")
    problems.raise_if_any()
    return float(found[0].now)


def thaws_at(rules: Iterable[Freeze], steps_per_epoch: int) -> tuple[int, ...]:
    """The steps after which one of the rules lets something be trained, in order."""
    found = {rule.until.in_steps(steps_per_epoch) for rule in rules}
    return tuple(sorted(step for step in found if step is not None))


def planned_steps(session: Session, steps_per_epoch: int) -> int:
    """How many steps the whole run has."""
    return session.train.steps or max(1, round((session.train.epochs or 0) * steps_per_epoch))


def _why_fixed_while_there(change: SettingChange) -> str | None:
    return FIXED_WHILE_THERE.get(change.setting) if change.was is not None and change.now is not None else None


def _by_name(session: Session | Script) -> Mapping[str, Any]:
    settings = flat(session)
    plugins = {name for name in settings if name.endswith(".name") and name not in FOLDER}
    return {name.removesuffix(".name") if name in plugins else name: value for name, value in settings.items()}


def _shown(value: Any) -> str:
    from volary.session.resolved import flow

    return flow(value)
