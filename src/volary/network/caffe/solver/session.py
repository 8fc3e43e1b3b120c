"""A solver as a session: what each of its fields becomes, and which are left out, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from volary.errors import SettingError
from volary.network.caffe.findings import Findings
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.reading.text import read_text
from volary.network.caffe.solver import data
from volary.network.caffe.solver.files import found_from
from volary.network.caffe.solver.rules import optimizer, schedule
from volary.network.caffe.solver.snapshot import SolverSnapshot
from volary.network.caffe.source import NetSource, read_net
from volary.network.caffe.types.registry import LOSSES

Settings = dict[str, Any]
_IGNORED = {
    "display": "the console and the recorded metrics have every step",
    "average_loss": "the recorded loss is of each step",
    "snapshot_prefix": "a run has a folder of its own; `volary export --caffe` writes a caffemodel",
    "snapshot_format": "checkpoints are safetensors; `volary export --caffe` writes a caffemodel",
    "snapshot_diff": "checkpoints hold no gradients",
    "snapshot_after_train": "the end of a run is always saved",
    "test_compute_loss": "the loss is measured always",
    "test_initialization": "the first evaluation is after the first period",
    "test_iter": "all validation data is measured, each sample once",
    "device_id": "each worker takes a device of its own",
    "debug_info": "the recorded histograms show values and gradients",
    "layer_wise_reduce": "strategy.exchange says how gradients travel",
}


@dataclass(frozen=True)
class SolverSettings:
    """The settings of a session, and sentences on what of the solver changes nothing."""

    settings: Settings
    ignored: list[str]


def session_settings(
    file: Path,
    workers: int,
    given: Collection[str] = (),
    begun: SolverSnapshot | Path | None = None,
) -> SolverSettings:
    """The session that a solver file describes, for so many workers, each with the batch of one device.

    given: dotted names of settings that the user gives, which the solver need not say. begun: a caffemodel to start
    from, or a snapshot to continue from. Raises SettingError with a sentence for each thing that cannot be had.
    """
    findings = Findings(str(file))
    solver = read_text(file, "Solver", findings)
    for name, why in _IGNORED.items():
        if name in solver:
            findings.ignore(f"{name} is ignored: {why}", solver.line_of(name))
    weights = begun.weights if isinstance(begun, SolverSnapshot) else begun
    found = _Conversion(file, solver, workers, given, findings).settings(weights)
    if isinstance(begun, SolverSnapshot):
        _continue(found, begun, given, findings)
    findings.raise_if_any()
    return SolverSettings(found, findings.ignored)


def _continue(found: Settings, snapshot: SolverSnapshot, given: Collection[str], findings: Findings) -> None:
    """All layers have weights in a snapshot, and there has to be something left to train."""
    found.get("network", {})["missing"] = "refuse"
    if snapshot.iterations >= found["train"]["steps"] and not {"train.steps", "train.epochs"} & set(given):
        findings.add(
            f"max_iter is {found['train']['steps']}; accepted: above the {snapshot.iterations} iterations of "
            f"{snapshot.file}, or train.steps=... on the command line"
        )


class _Conversion:
    def __init__(
        self, file: Path, solver: CaffeMessage, workers: int, given: Collection[str], findings: Findings
    ) -> None:
        self._file, self._solver, self._workers = file, solver, workers
        self._given, self._findings = given, findings
        self._net_file = str(file)

    def settings(self, weights: Path | None) -> Settings:
        """All settings; what is wrong is noted."""
        one = self._solver.one
        found: Settings = {"strategy": {"workers": self._workers}}
        self._try("optimizer", lambda: found.update(optimizer=optimizer(self._solver)))
        self._try("schedule", lambda: found.update(schedule=schedule(self._solver)))
        found["train"] = self._train()
        found["evaluate"] = {"every": _every(one("test_interval"))}
        # the end of a run is saved, whatever the period
        found["checkpoint"] = {"every": _every(one("snapshot") or max(1, one("max_iter")))}
        self._try("network", lambda: self._add_network(found, weights))
        return found

    def _train(self) -> Settings:
        one = self._solver.one
        if one("max_iter") < 1 and "train.steps" not in self._given:
            self._note(f"max_iter is {one('max_iter')}; accepted: a whole number from 1", "max_iter")
        found: Settings = {"steps": max(1, one("max_iter")), "accumulate": max(1, one("iter_size"))}
        if one("iter_size") < 1:
            self._note(f"iter_size is {one('iter_size')}; accepted: a whole number from 1", "iter_size")
        if one("clip_gradients") > 0:
            # Caffe clips the sum of iter_size gradients, and divides after that
            found["clip_norm"] = one("clip_gradients") / max(1, one("iter_size"))
        if one("random_seed") >= 0:
            found["seed"] = one("random_seed")
        if one("solver_mode") == "CPU":
            found["device"] = "cpu"
        return found

    def _add_network(self, found: Settings, weights: Path | None) -> None:
        path = self._net()
        net = read_net(path, self._states())
        found["network"] = {"name": "caffe", "caffe": str(path.absolute())} | self._stages() | self._weights(weights)
        if not any(one.startswith("loss") for one in self._given):
            found["loss"] = loss(net)
        layer = data.data_layer(net, "TRAIN")
        samples = data.samples_a_step(layer) if layer else None
        found["data"] = {}
        if "data.batch_size" not in self._given:
            if samples is None:
                raise SettingError(f"{net.file}: no data layer says a batch_size; accepted: data.batch_size=...")
            found["data"]["batch_size"] = samples * self._workers * max(1, self._solver.one("iter_size"))
        if not any(one.startswith("data.source") for one in self._given):
            found["data"]["source"] = data.source(net, self._file.parent, self._findings)
        self._findings.ignored += net.findings.ignored

    def _net(self) -> Path:
        solver = self._solver
        named = [name for name in ("net", "train_net", "net_param", "train_net_param") if name in solver]
        if len(named) != 1 or solver.all("test_net") or solver.all("test_net_param"):
            what = " and ".join([*named, *(name for name in ("test_net", "test_net_param") if name in solver)])
            raise SettingError(f"has {what or 'no network'}; accepted: net, a file with the layers of both phases")
        if named[0].endswith("param"):
            raise SettingError(f"has its network inside, as {named[0]}; accepted: net, a file")
        path = solver.one(named[0])
        found = found_from(path, self._file.parent)
        if found is None or found.is_dir():
            raise SettingError(
                f"{named[0]}: {path}: no such file; looked for from the working directory, from the solver's folder "
                "and those above it, and beside the solver"
            )
        self._net_file = str(found)
        return found

    def _stages(self) -> Settings:
        states = [*self._solver.all("train_state"), *self._solver.all("test_state")[:1]]
        for state in self._solver.all("test_state")[1:]:
            self._findings.ignore("test_state: one network is evaluated, the first", state.line)
        if any(state.one("level") for state in states):
            self._note("level of a state; accepted: stages alone", "test_state")
        stages = list(dict.fromkeys(stage for state in states for stage in state.all("stage")))
        return {"stages": stages} if stages else {}

    def _states(self) -> tuple[str, ...]:
        return tuple(self._stages().get("stages", ()))

    def _weights(self, weights: Path | None) -> Settings:
        named = [str(weights)] if weights else self._solver.all("weights")
        if len(named) > 1 or any("," in one for one in named):
            self._note("weights: names several files; accepted: one", "weights")
        if not named:
            return {}
        return {"weights": str(found_from(named[0], self._file.parent) or named[0]), "missing": "fresh"}

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except SettingError as error:
            for line in filter(None, str(error).splitlines()):
                if line.startswith((f"{self._file}:", f"{self._net_file}:")):
                    self._findings.found.append(line)
                else:
                    field = line.partition(" ")[0].rstrip(":")
                    self._findings.add(line, self._solver.line_of(field))

    def _note(self, sentence: str, field: str) -> None:
        self._findings.add(sentence, self._solver.line_of(field))


def loss(net: NetSource) -> Settings:
    """The loss of a network's loss layers. Raises SettingError for losses that no loss of Volary's is."""
    layers = [one for one in net.layers["TRAIN"] if one.one("type") in LOSSES]
    instead = "accepted: SoftmaxWithLoss, or loss=... on the command line"
    if not layers:
        raise SettingError(f"{net.file}: has no loss layer for training; {instead}")
    weights, ignored = [], set[int | None]()
    for layer in layers:
        where = f"{net.file}:{layer.line}: layer {layer.one('name')!r}:"
        if layer.one("type") != "SoftmaxWithLoss":
            raise SettingError(f"{where} type {layer.one('type')!r}; {instead}")
        settings = layer.part("loss_param")
        label = settings.one("ignore_label") if "ignore_label" in settings else None
        by = _divided_by(settings)
        if by == "NONE" or (by != "VALID" and label is not None):
            more = ", or FULL and BATCH_SIZE without ignore_label" if by != "NONE" else ""
            raise SettingError(f"{where} has normalization {by}; accepted: VALID{more}")
        ignored.add(label)
        weights.append((layer.all("loss_weight") or [1.0])[0])
    main, *others = sorted(weights, reverse=True)
    if main != 1 or len(set(others)) > 1:
        raise SettingError(f"{net.file}: loss_weight are {weights}; accepted: 1, and one other for all other losses")
    if len(ignored) > 1:
        raise SettingError(f"{net.file}: the losses differ in ignore_label; accepted: one for all of them")
    label = ignored.pop()
    ignoring = {} if label is None else {"ignore_index": label}
    return {"name": "cross_entropy"} | ({"auxiliary_weight": others[0]} if others else {}) | ignoring


def _divided_by(settings: CaffeMessage) -> str:
    """The number that a loss is divided by; the older field holds where the newer one is not there."""
    if "normalization" not in settings and "normalize" in settings:
        return "VALID" if settings.one("normalize") else "BATCH_SIZE"
    return str(settings.one("normalization"))


def _every(steps: int) -> str:
    return f"{steps} steps" if steps > 0 else "never"
