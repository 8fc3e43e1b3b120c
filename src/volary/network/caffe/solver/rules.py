"""The update rule and the learning rate of a solver, as settings of an optimiser and of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volary.errors import SettingError
from volary.network.caffe.message import CaffeMessage

Settings = dict[str, Any]
_OLD_TYPES = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
}
TYPES = tuple(_OLD_TYPES.values())
POLICIES = ("fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid")


def type_of(solver: CaffeMessage) -> str:
    """The solver's type, which old files give as an enum. Raises SettingError if it is given twice, or unknown."""
    if "solver_type" in solver:
        if "type" in solver:
            raise SettingError("type and solver_type are both given; accepted: one of them")
        return _OLD_TYPES[solver.one("solver_type")]
    if solver.one("type") not in TYPES:
        raise SettingError(f"type is {solver.one('type')!r}; accepted: {', '.join(TYPES)}")
    return str(solver.one("type"))


def optimizer(solver: CaffeMessage) -> Settings:
    """The optimiser that is the solver's update rule. Raises SettingError for one that there is not."""
    found = type_of(solver)
    if not solver.one("base_lr") > 0:
        raise SettingError(f"base_lr is {solver.one('base_lr'):g}; accepted: above 0")
    settings = {"lr": solver.one("base_lr"), "weight_decay": solver.one("weight_decay")}
    kind, momentum = solver.one("regularization_type"), solver.one("momentum")
    if kind not in ("L1", "L2"):
        raise SettingError(f"regularization_type is {kind!r}; accepted: L1, L2")
    if found in ("SGD", "Nesterov"):
        nesterov = found == "Nesterov" and momentum > 0
        return {"name": "caffe_sgd", **settings, "momentum": momentum, "decay": kind.lower(), "nesterov": nesterov}
    if kind == "L1" and solver.one("weight_decay"):
        raise SettingError(f"regularization_type is L1 with {found}; accepted with it: L2")
    if found in ("AdaGrad", "RMSProp") and momentum:
        raise SettingError(f"momentum is {momentum:g} with {found}; accepted: 0, as in Caffe")
    own: dict[str, Settings] = {
        "AdaGrad": {"name": "adagrad", "eps": solver.one("delta")},
        "RMSProp": {"name": "rmsprop", "alpha": solver.one("rms_decay"), "eps": solver.one("delta")},
        "AdaDelta": {"name": "adadelta", "rho": momentum, "eps": solver.one("delta")},
        "Adam": {"name": "adam", "betas": [momentum, solver.one("momentum2")], "eps": solver.one("delta")},
    }
    return own[found] | settings


def schedule(solver: CaffeMessage) -> Settings:
    """The schedule that is the solver's policy. Raises SettingError for one that is unknown, or lacks a field."""
    policy = solver.one("lr_policy")
    schedules: dict[str, Callable[[], Settings]] = {
        "fixed": lambda: {"name": "constant"},
        "step": lambda: {"name": "step", "every": _given(solver, "stepsize"), "gamma": _given(solver, "gamma")},
        "exp": lambda: {"name": "exponential", "gamma": _given(solver, "gamma")},
        "inv": lambda: {"name": "inverse", "gamma": _given(solver, "gamma"), "power": _given(solver, "power")},
        "multistep": lambda: _steps(solver),
        "poly": lambda: {"name": "polynomial", "power": _given(solver, "power"), "max_steps": solver.one("max_iter")},
        "sigmoid": lambda: {
            "name": "sigmoid",
            "middle": _given(solver, "stepsize"),
            "gamma": _given(solver, "gamma"),
        },
    }
    if policy not in schedules:
        raise SettingError(f"lr_policy is {policy!r}; accepted: {', '.join(POLICIES)}")
    return schedules[policy]()


def _steps(solver: CaffeMessage) -> Settings:
    if not solver.all("stepvalue"):
        return {"name": "constant"}
    return {"name": "multistep", "milestones": solver.all("stepvalue"), "gamma": _given(solver, "gamma")}


def _given(solver: CaffeMessage, name: str) -> Any:
    if name not in solver:
        raise SettingError(f"{name} is missing; lr_policy {solver.one('lr_policy')!r} needs it")
    return solver.one(name)
