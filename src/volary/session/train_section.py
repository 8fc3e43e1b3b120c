"""The section `train`: how long and how carefully; which layers are trained; what is clipped, mixed and averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.session.checks import POSITIVE, WHOLE, require
from volary.session.reading.choice import Choice
from volary.session.reading.settle import settle
from volary.session.values.period import EVERY_20_STEPS, EVERY_100_STEPS, NEVER, Period

MOST_STEPS = 10**12  # of a run: 30 years at a thousand a second


@dataclass(frozen=True, kw_only=True)
class ParameterFactors:
    """Factors of the optimiser's settings for the parameters whose names fit a pattern."""

    match: str  # a pattern of names, such as "*.bias" or "fc*"; vectors: biases and norms, all with one dimension
    lr: float = 1.0  # factor of the learning rate; 0: these parameters stay as they are
    weight_decay: float = 1.0  # factor of the optimiser's weight decay

    def __post_init__(self) -> None:
        settle(self)
        require(bool(self.match), "match", "''", "a pattern of names, such as '*.bias'")
        require(self.lr >= 0, "lr", self.lr, "0 or more")
        require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "0 or more")


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Layers that are not trained: they neither travel nor change."""

    match: str  # a layer, such as "layer1", or a pattern of parameters' names, such as "*.bias"
    until: Period = NEVER  # when they are trained all the same, such as "3 epochs"; never: not in this run
    statistics: Literal["update", "keep"] = (
        "update"  # of their batch norm while they are frozen; keep: they stand still
    )

    def __post_init__(self) -> None:
        settle(self)
        require(bool(self.match), "match", "''", "a layer, or a pattern of names, such as 'layer1' or '*.bias'")


@dataclass(frozen=True, kw_only=True)
class Train:
    """How long and how carefully. In Python `session.train` is also called: `session.train()` trains."""

    start: ClassVar[Callable[..., Any] | None] = None  # `volary.api.train`, which is set by that room: it imports this

    epochs: float | None = field(default=None, metadata={"instead_of": "steps"})  # passes over the data (default 10)
    steps: int | None = field(default=None, metadata={"instead_of": "epochs"})  # updates, instead of epochs
    stop_at: Period = (
        NEVER  # save and stop when so much is done, such as "3 epochs"; `volary resume` goes on from there
    )
    seed: int = 1  # of everything random: initial parameters, sample order, dropout
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: cuda if every worker can have a device, else cpu
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"  # of forward and backward; parameters stay fp32
    scale_lr: Literal["none", "linear", "sqrt"] = "none"  # the rate times the workers that share a batch, or its root
    recompute: tuple[str, ...] = ()  # patterns of layers whose activations backward computes anew, to save memory
    channels_last: bool = False  # activations of images lie as samples x height x width x channels
    compile: bool = False  # the network is compiled (torch.compile) when it first runs
    sync_batch_norm: bool = False  # batch norms go by the samples of all workers, as in one process
    accumulate: int = 1  # parts that a worker's share of a batch is computed in, to save memory
    clip_norm: float | None = None  # largest norm of the whole gradient; longer ones are scaled down
    clip_value: float | None = None  # largest magnitude of one value of the gradient
    clip_adaptive: float | None = None  # largest norm of a unit's gradient, as a share of that of its weights
    mix: tuple[
        Annotated[Any, Choice("volary.train.mixing")], ...
    ] = ()  # how samples are mixed; a batch by one of these
    freeze: tuple[Freeze, ...] = ()  # layers that are not trained, or not yet; the first that fits counts
    average: Annotated[Any, Choice("volary.train.averages")] = "none"  # of the weights, kept beside them
    parameters: tuple[ParameterFactors, ...] = ()  # factors of rate and decay by name; the first that fits counts
    layer_decay: float = 1.0  # factor of the learning rate from each layer to the one before it; the last has 1
    on_nonfinite: Literal["stop", "skip"] = "stop"  # a NaN or infinite loss ends the run, or its update is left out
    compare_replicas: Period = EVERY_100_STEPS  # how often replicas that must be equal are compared; also at the end
    histograms: Period = (
        EVERY_20_STEPS  # how often weights, gradients, updates are looked at; in 0.5 % of the time at most
    )
    trace: Period = EVERY_100_STEPS  # how often two steps are recorded for `volary trace`, beside steps 2 to 11

    def __post_init__(self) -> None:
        settle(self)
        if self.epochs is not None and self.steps is not None:
            raise SettingError("epochs and steps are both given; accepted: one of them")
        if self.epochs is None and self.steps is None:
            object.__setattr__(self, "epochs", 10.0)
        require(self.epochs is None or self.epochs > 0, "epochs", self.epochs, POSITIVE)
        require(self.steps is None or self.steps >= 1, "steps", self.steps, WHOLE)
        for name, value in (("epochs", self.epochs), ("steps", self.steps)):
            require(value is None or value <= MOST_STEPS, name, value, f"up to {MOST_STEPS:,}")
        length = self.epochs if self.stop_at.unit == "epochs" else self.steps
        if self.stop_at != NEVER and length is not None and self.stop_at.count >= length:
            raise SettingError(
                f"stop_at is '{self.stop_at}' of {length:g}; accepted: less than the run has, or 'never'"
            )
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2**63 - 1")
        require(self.accumulate >= 1, "accumulate", self.accumulate, WHOLE)
        require(0 < self.layer_decay <= 1, "layer_decay", self.layer_decay, "above 0, up to 1")
        require(self.clip_norm is None or self.clip_norm > 0, "clip_norm", self.clip_norm, POSITIVE)
        require(self.clip_value is None or self.clip_value > 0, "clip_value", self.clip_value, POSITIVE)
        require(self.clip_adaptive is None or self.clip_adaptive > 0, "clip_adaptive", self.clip_adaptive, POSITIVE)

    def __call__(self, **options: Any) -> Any:
        """Train the session that this section belongs to; what `volary.api.train(session, **options)` returns.

        Raises SettingError without a session, and what `volary.api.train` raises.
        """
        session = vars(self).get("_session")
        if session is None:
            raise SettingError("this train section belongs to no session; call session.train()")
        if Train.start is None:
            raise SettingError("session.train() needs `from volary import Session`")
        return Train.start(session, **options)
