"""A worker's copy of the network, and how it and all others stay one model."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from volary.run.database.traffic import added

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.exchange._base import Keeper
    from volary.exchange.gradients.bucket import ParameterGate
    from volary.run.database.traffic import Traffic
    from volary.train.agreement.first_state import DeferredTensors
    from volary.train.agreement.votes import Agreed, Vote
    from volary.train.coordinator import LearnTask
    from volary.train.recording.recorder import Recorder
    from volary.train.state.stateful import RankState


def await_parameter(keeper: Keeper, gate: ParameterGate, recorder: Recorder) -> tuple[float, float]:
    """Wait until a parameter may be read; return when that began and ended, of time.perf_counter. Raises PeerLost."""
    started_s = time.perf_counter()
    with recorder.waiting():
        keeper.pull(gate)
    ended_s = time.perf_counter()
    if recorder.spans.recording:
        recorder.spans.add(recorder.step + 1, "wait", gate.name, started_s, ended_s)
    return started_s, ended_s


class Replica(Protocol):
    """Gradients leave as they become ready; whoever reads a parameter waits until it is as new as it must be."""

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """The bytes that this worker has sent and received since it started, by codec and route."""
        ...

    def begin(self, task: LearnTask) -> None:
        """Begin a contribution: from now on parameters are as new as it wants when they are read. Raises PeerLost."""
        ...

    def update(self) -> None:
        """Update this worker's own parameters with its own gradients, or its group's, between two pushes."""
        ...

    def update_own(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        """Update these parameters, which no other worker updates, by these gradients; scale: a factor of them.

        Raises AssertionError with strategies whose parameters change once a step.
        """
        raise AssertionError("with this strategy parameters change once a step")

    def await_all(self) -> None:
        """Wait until all parameters are as new as the contribution at hand wants them, on this worker. Raises PeerLost.

        This worker alone calls it, before it looks at them; it changes nothing of what comes when.
        """
        ...

    def settle(self) -> None:
        """Wait until all that was pushed counts: before anything but training reads parameters. Raises PeerLost."""
        ...

    def close(self) -> None:
        """Remove all hooks from the network, and end what runs beside the training thread."""
        ...


def record_step(recorder: Recorder, *replicas: Replica, epoch: float, samples: int, loss: float, lr: float) -> None:
    """Close a step, of all these replicas of this worker: a row with what they have sent and received for it.

    epoch: where the run is now, in epochs. samples, loss: this worker's.
    """
    recorder.end_step(
        epoch=epoch,
        samples=samples,
        loss=loss,
        lr=lr,
        traffic=added(*(one.traffic for one in replicas)),
    )


class Voting(Replica, Protocol):
    """One of replicas that all keep step: each applies what all agree on, and they vote on what that is."""

    def begin(self, task: LearnTask) -> None:
        """Begin a contribution. Nothing has to be asked for: what is agreed comes."""
        return

    def update(self) -> None:
        """Update nothing, as only what is agreed updates parameters."""
        return

    def vote_own(self, vote: Vote, divisor: float) -> None:
        """Say what those must agree on that `update` is of, before the last backward pass that comes before it.

        divisor: of their losses. Nobody has to be told where a worker updates its own replica alone.
        """
        return

    def updated(self) -> None:
        """This worker's own parameters were updated with its own gradients, in `update` or by a user's loop."""
        return

    def await_all(self) -> None:
        """Wait for nothing: all are as new as wanted, unless sums are applied as they arrive."""
        return

    @property
    def own(self) -> Mapping[str, RankState]:
        """The state of this replica that no other worker's has, by its name in a checkpoint."""
        return {}

    @property
    def alike(self) -> Mapping[str, Tensor]:
        """Values that all replicas have alike beside parameters of their own, by the parameter's name."""
        return {}

    def gathers_anew(self) -> bool:
        """Whether workers gather what others own when they read it; then they gather it anew from now on.

        Called on all, once what they own was changed outside of a step.
        """
        return False

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Lend the network the one model that all replicas are, with all updates: to evaluate, to save.

        A collective call. Raises PeerLost.
        """
        self.settle()
        yield

    def take_back(self, own: Mapping[str, Any]) -> None:
        """Nothing exchanges any more, and `own` is what this replica's state was: the network has what goes with that,
        and of what all have alike what rank 0 would send.

        Until an update is made of a contribution, by default nothing has changed.
        """
        return

    def take_own(self) -> None:
        """Go on from what `own` was restored to; `start` does so, too."""
        return

    def start(self, late: DeferredTensors) -> None:
        """Give all ranks rank 0's parameters, then what is `late`; before the first step. A collective call.

        It may still be under way when this returns: whoever reads a parameter waits for it.
        """
        ...

    def finish(self) -> None:
        """End training that has not failed: there may be something to say of it."""
        return

    def vote(self, vote: Vote) -> None:
        """Say what all ranks must agree on, before the contribution's last backward pass. Raises PeerLost."""
        ...

    def agree(self) -> Agreed:
        """Return what all ranks agree on, once backward is over. Raises PeerLost."""
        ...

    def drop(self, cleared: Container[int]) -> None:
        """Drop what parameters with these ids have got so far, between two backward passes of a step.

        Raises SettingError if it cannot be told from what others have got.
        """
        return

    def apply(self, scale: float = 1.0) -> None:
        """Let the update happen, now or as its sums arrive. scale: a factor of all gradients."""
        ...

    def gradient_norm(self, kind: float) -> Tensor:
        """The norm of the agreed gradients, of `kind` as in torch, before `apply` where sums are applied as they come.

        A scalar. Waits for all of them. Raises PeerLost.
        """
        raise AssertionError("gradients are at hand after `agree`")

    def leave_out(self) -> None:
        """Let the step pass without an update."""
        ...

    def forget(self) -> None:
        """Let nothing of the contribution leave; what backward makes is dropped, up to `expect`."""
        return

    def expect(self) -> None:
        """After `forget`: another contribution begins."""
        return
