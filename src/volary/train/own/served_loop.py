"""A loop of a user's own over servers: the roster says what is learnt from, and servers update the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]  # torch exports it untyped
from torch.utils._pytree import tree_leaves

from volary.comm.control.store import KeyedStore
from volary.comm.groups.group import LAST_RESORT_S, Group
from volary.comm.transports import ROOM as TRANSPORTS
from volary.consistency._base import Push
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import BadInput, SettingError, Stopped
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.gradients.contributions import PushedDifferences, PushedGradients
from volary.run.checkpoints import Checkpoints
from volary.server.client.client import Client
from volary.server.client.link import Link
from volary.server.protocol.messages import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.coordinator import LearnTask, MicroBatch, Outcome
from volary.train.member.bulletin import BoardBulletin
from volary.train.member.compare import compare_with_first, shape_facts
from volary.train.member.remote_directory import bring
from volary.train.own.model.contents import Contents
from volary.train.own.model.losses import loss_of_backward
from volary.train.own.served_checkpoints import ServedCheckpoints
from volary.train.own.served_feed import OwnPortions, ServedFeed
from volary.train.recording.histograms import Histograms
from volary.train.served.admission import admitted, connecting
from volary.train.served.by_roster import ByRoster, LearningSettings
from volary.train.served.layout import cut_network
from volary.train.served.replica import ServedReplica
from volary.train.served.residuals import OwnState, Residuals, Writers
from volary.train.served.server.network_file import HERE, load_values, write_network
from volary.train.served.server.own_optimizer import OwnOptimizer, plain
from volary.train.state.rank_state import is_of_rank, rank_states

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from volary.comm.routes._base import Memory
    from volary.exchange._base import Keeper
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.contributions import Contributions
    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import EndWatch
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.served.roster_client import RosterClient

NEEDED = "exchange=server needs worker.distribute(model, optimizer) and a loop over worker.feed(data)"


class ServedLoop:
    """What `worker.distribute` and `worker.feed` do over servers. rank of size workers that the run began with.

    facts: what all workers must agree on, besides the network. meet: the group of all workers, for a while. The worker
    comes to the roster with its first batch: only then it is known how many samples there are.
    """

    def __init__(
        self,
        script: Script,
        member: Membership,
        recorder: Recorder,
        pulse: EndWatch,
        device: torch.device,
        facts: Facts,
        meet: Callable[[], AbstractContextManager[Group]],
    ) -> None:
        self.rank, self.size = member.place.rank, script.strategy.workers
        self._script, self._member, self._recorder, self._pulse = script, member, recorder, pulse
        self._device, self._facts, self._meet = device, facts, meet
        self.alone = Group(BoardBulletin(HashStore(), 0, 1, 0))
        self.checkpoints = ServedCheckpoints(self, member)
        self.saves = False  # whether the loop is made to be saved
        self._together: Group | None = None  # of all workers, from their first call on that needs it
        self._held = ExitStack()
        self._local = script.strategy.consistency.pushes is Push.DIFFERENCE
        self._model: nn.Module | None = None
        self._optimizer: Optimizer | None = None
        self._portions: OwnPortions | None = None
        self._fed: tuple[tuple[Any, int | None, bool | None], ServedFeed] | None = None
        self._training: _Training | None = None

    @property
    def outcome(self) -> Outcome:
        """How the run has ended for this worker, once it has."""
        return "stopped" if self._training is None else self._training.work.outcome

    @property
    def began(self) -> bool:
        """Whether this worker has been given work."""
        return self._training is not None

    @property
    def updates_locally(self) -> bool:
        """Whether workers update their own parameters."""
        return self._local

    @property
    def models(self) -> list[nn.Module]:
        """Those that are distributed."""
        return [] if self._model is None else [self._model]

    @property
    def weight(self) -> float:
        """This worker's part of the samples of the newest batch, over all workers."""
        return 1 / self.size if self._training is None else self._training.part_of_batch

    def peers(self, called: str) -> Group:
        """Who makes this call together: all workers, who meet with the first one; each alone where they come and go.

        Raises BadInput for a call that then means nothing.
        """
        if not self._script.strategy.consistency.elastic:
            if self._together is None:
                self._together = self._held.enter_context(self._meet())
            return self._together
        if called in ("evaluate", "feed"):  # the samples of an evaluation
            return self.alone
        raise BadInput(
            f"worker.{called} is of all workers, who here go each at its own pace, and may come and go; accepted: "
            "consistency=bsp or local, or exchange=allreduce"
        )

    def distribute(self, model: nn.Module, optimizer: Optimizer, passes: int) -> None:
        """From now on servers keep the model. Raises BadInput for what they cannot have."""
        if passes != 1:
            raise BadInput(
                f"worker.distribute: passes is {passes}; accepted with exchange=server: 1 (push_every of async adds up)"
            )
        self._settings = OwnOptimizer.of(optimizer, _trained(model))
        self._contents = Contents(model)
        self._model, self._optimizer = model, optimizer
        _Hooks(self, self._recorder).attach(model, optimizer)

    def refuse_changed(self) -> None:
        """Raise SettingError if the model is another than servers have."""
        if changed := self._contents.changed():
            raise SettingError(
                f"{changed}, and servers have the model as worker.distribute was given it; accepted with "
                "exchange=server: such changes before that"
            )

    def feed(self, data: Any, batch_size: int | None, shuffle: bool | None) -> ServedFeed:
        """The batches that the roster hands out of `data`. Raises BadInput, DataError, SettingError."""
        if self._fed is not None:
            (known, *how), feed = self._fed
            if known is data and how == [batch_size, shuffle]:
                return feed
            raise BadInput("worker.feed was given other data than before; accepted with exchange=server: the same")
        seed = self._script.seed
        portions = OwnPortions(
            shared(data, batch_size, shuffle, Among(self.rank, self.size, seed, lambda plan: plan)), self._device, seed
        )
        if portions.loader.num_workers:
            text = "worker.feed reads in the worker itself over servers: num_workers of the DataLoader is unused"
            self._recorder.event("warning", text=text)
        self._portions = portions
        self._fed = (data, batch_size, shuffle), ServedFeed(portions, self._epoch)
        return self._fed[1]

    def finish(self) -> None:
        """The user's loop is over: see the run out. Raises BadInput if nothing was distributed or fed."""
        if self._training is None:
            raise BadInput(f"the loop ended without a batch; {NEEDED}")
        self._training.finish()

    def close(self) -> None:
        """Let go of the model and the servers."""
        if self._training is not None:
            self._training.close()
        self._held.close()

    @property
    def training(self) -> _Training:
        """What goes on. Raises BadInput before the first batch."""
        if self._training is None:
            raise BadInput(f"a step was taken before the first batch; {NEEDED}")
        return self._training

    def _epoch(self, first: int) -> Iterator[Any]:
        if self._model is None or self._optimizer is None or self._portions is None:
            raise BadInput(f"a batch was asked for before worker.distribute; {NEEDED}")
        if self._training is None:
            self._training = self._began(self._model, self._optimizer, self._portions)
        return self._training.epoch(first)

    def _began(self, model: nn.Module, optimizer: Optimizer, portions: OwnPortions) -> _Training:
        strategy, settings, recorder = self._script.strategy, self._settings, self._recorder
        recorder.starting("waiting for the servers")
        recorder.enter("exchange")
        servers = strategy.servers
        layout = cut_network(strategy, model, portions.batch_size, servers, elementwise=settings.elementwise)
        plan = describe(layout.plans, layout.chunk_mb)
        with closing(self._board()) as board:
            if self.rank == 0:
                write_network(self._member.directory.path, model, settings, portions.batch_size, plan)
                board.set(HERE, b"")
            else:
                board.wait([HERE])
                load_values(model, self._member.directory.path)
        facts = self._facts | shape_facts(model) | {f"plan, number {place}": one for place, one in enumerate(plan)}
        facts |= {"optimizer": settings.kind} | {f"optimizer, group {n}": str(g) for n, g in enumerate(settings.groups)}
        hello = WorkerHello(self.rank, facts, portions.samples, 0, "", True, batch_size=portions.batch_size)
        held = ExitStack()
        try:
            work = held.enter_context(admitted(self._member, hello, lambda: self._pulse.asked_to_end))
            welcome = work.welcome()
            if welcome is None:
                raise Stopped("the run is over")
            compare_with_first(welcome.facts, facts, self.rank)
            return self._trains(held, work, layout, model, optimizer, portions, welcome.restore)
        except BaseException:
            held.close()
            raise

    def _trains(
        self,
        held: ExitStack,
        work: RosterClient,
        layout: Layout,
        model: nn.Module,
        optimizer: Optimizer,
        portions: OwnPortions,
        restore: int | None,
    ) -> _Training:
        strategy, recorder = self._script.strategy, self._recorder
        transport = TRANSPORTS.load(strategy.exchange.transport)()
        link = Link(Client(layout.slices, self.rank), connecting(strategy, self._member, transport), work.unreachable)
        writers, encoding = held.enter_context(closing(Writers())), PushEncoding(layout.plans, None)

        def residuals(keeper: Keeper) -> Residuals:
            own, kept = OwnState(keeper, None), self.saves and strategy.consistency.elastic
            self._restore(own, restore)
            return Residuals(own, self.checkpoints.write_own, work.saved, writers.start, kept=kept)

        def made(memory: Sequence[Memory], ready: Callable[[Chunk], None]) -> Contributions:
            if self._local:
                return PushedDifferences(layout.plans, memory, ready, chunk_mb=layout.chunk_mb)
            weight = partial(_Training.weight, training)
            passes, chunk_mb = strategy.consistency.steps(), layout.chunk_mb
            return PushedGradients(model, layout.plans, memory, ready, chunk_mb=chunk_mb, passes=passes, weight=weight)

        training = _Training(held, work, recorder, optimizer, local=self._local, elastic=strategy.consistency.elastic)
        # before the replica, whose parameters are waited for when they are read; one worker looks for all
        histograms = Histograms(
            model, recorder, self._script.histograms, lambda: replica.await_all(), wanted=self.rank == 0
        )
        replica = ServedReplica(
            strategy, model, layout, recorder, link, transport, encoding, residuals, made, work.done
        )
        held.enter_context(closing(replica))
        learning = LearningSettings(
            consistency=strategy.consistency,
            batch_size=portions.batch_size,
            seed=None,
            lr=lambda _: training.rates[0],
            rates=lambda: training.rates,
        )
        work.start(link.view, link.fail, replica.residuals)
        coordinator = ByRoster(
            learning,
            work=work,
            replica=replica,
            recorder=recorder,
            reader=portions,
            histograms=histograms,
            steps_per_epoch=-(-portions.samples // portions.batch_size),
        )
        training.begin(replica, coordinator)
        return training

    def _restore(self, own: OwnState, step: int | None) -> None:
        if step is not None and self.rank < self.size:  # whoever joins later has left out nothing yet
            checkpoints = Checkpoints(self._member.directory.checkpoints)
            manifest = bring(self._member.remote, checkpoints, step, is_of_rank)
            own.restore(rank_states(checkpoints.path(step), manifest, self.rank, self.size))

    def _board(self) -> KeyedStore:
        member = self._member
        return KeyedStore.at(member.host, member.port, member.directory.key(), member.server_life, LAST_RESORT_S)


class _Training:
    """From the first batch to the end. local: the user's optimiser updates this worker's own parameters.

    A batch is at hand from the moment when it is given out to the next. What is not computed of it by then counts as
    computed, without gradients.
    """

    def __init__(
        self,
        held: ExitStack,
        work: RosterClient,
        recorder: Recorder,
        optimizer: Optimizer,
        *,
        local: bool,
        elastic: bool,
    ) -> None:
        self.work, self.local = work, local
        self._held, self._recorder, self._optimizer, self._elastic = held, recorder, optimizer, elastic
        self._kept = [_fixed(group) for group in optimizer.param_groups]
        self._replica: ServedReplica
        self._coordinator: ByRoster
        self._tasks: Iterator[Any]
        self._task: LearnTask | None = None
        self._parts: Iterator[MicroBatch] = iter(())
        self._now: MicroBatch | None = None  # at hand
        self._computed = self._stepped = self._ended = False
        self._finished = 0  # the clock of the next contribution

    def begin(self, replica: ServedReplica, coordinator: ByRoster) -> None:
        self._replica, self._coordinator, self._tasks = replica, coordinator, iter(coordinator)

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates now. Raises SettingError if something else of the optimiser has changed."""
        for group, kept in zip(self._optimizer.param_groups, self._kept, strict=True):
            for name, value in _fixed(group).items():
                if kept.get(name, value) != value:
                    raise SettingError(
                        f"the optimiser's {name} was changed from {kept[name]} to {value}; accepted with "
                        "exchange=server: changes of lr, which servers follow"
                    )
        return tuple(float(group["lr"]) for group in self._optimizer.param_groups)

    def weight(self) -> float:
        """The factor of gradients that backward makes now."""
        return 1.0 if self._now is None else self._now.weight

    @property
    def part_of_batch(self) -> float:
        """This worker's samples of the newest batch, by those of all workers."""
        return self._coordinator.part_of_batch

    @property
    def updates(self) -> bool:
        """Whether the step at hand changes this worker's own parameters."""
        return self.local and self._now is not None and self._now.count > 0

    def epoch(self, first: int) -> Iterator[Any]:
        """The batches of this worker up to the end of the epoch that is under way. Raises Stopped when the run ends.

        first: that is under way at least; -1: nobody knows.
        """
        epoch = first
        while True:
            self._pass_on()
            if (ahead := self._coming()) is None:
                raise Stopped("the run was asked to end")
            if -1 < epoch < ahead:
                self._recorder.enter("between steps")
                return
            epoch = max(epoch, ahead)
            self._now = part = next(self._parts)
            self._computed = self._stepped = False
            self._recorder.enter("forward")
            yield part.inputs

    def in_backward(self, loss: float | None) -> bool:
        """Backward begins, on `loss` if that is known. False: of this batch it has begun before."""
        if self._now is None:
            raise BadInput(f"backward without a batch; {NEEDED}")
        first, self._computed = not self._computed, True
        if first:
            self._coordinator.computed(self._now, loss if loss is not None and isfinite(loss) else None)
        return first

    def step(self) -> None:
        """The user's optimiser has taken a step."""
        if self._now is None or self._task is None or self._stepped:
            raise BadInput(f"optimizer.step() twice, or without a batch; {NEEDED}")
        self._stepped = True
        if not self._computed:
            self.in_backward(None)
        if self._now.last:
            self._coordinator.complete(self._task)
            self._finished = self._task.clock + 1
        else:
            self._recorder.enter("between steps")

    def save(self) -> None:
        """Have the run saved after this step. Raises SettingError within one, or within a period of `local`."""
        if self._now is not None and not self._elastic and not (self._stepped and self._now.last):
            after = "optimizer.step()" if not self._stepped else "the last step of a period of local"
            raise SettingError(f"worker.save was called within what workers push at once; accepted: after {after}")
        self._replica.settle()
        with self._recorder.waiting():
            self.work.save(self._finished)

    def finish(self) -> None:
        """The loop is over: what is at hand counts, and the run is seen out."""
        if self._ended:
            return
        self._pass_on()
        self._recorder.enter("idle")
        self._replica.settle()
        self.work.over(elastic=self._elastic)

    def close(self) -> None:
        self._held.close()

    def _pass_on(self) -> None:
        if self._now is not None and not self._stepped:
            self.step()
        self._now = None

    def _coming(self) -> int | None:
        """The epoch of the next batch, which is not read yet; None: the run is over for this worker."""
        while (epoch := self._coordinator.coming_epoch) is None:
            self._task = next(self._tasks, None)
            if self._task is None:
                self._ended = True
                return None
            self._replica.begin(self._task)
            self._parts = self._task.parts
        return epoch


class _Hooks:
    """Sees where the user's loop is."""

    def __init__(self, loop: ServedLoop, recorder: Recorder) -> None:
        self._loop, self._recorder = loop, recorder
        self._parameters: list[Tensor] = []

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._parameters = list(_trained(model).values())
        model.register_forward_pre_hook(self._entering)
        model.register_forward_hook(self._computed)
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(lambda *_: self._loop.training.step())

    def _entering(self, _model: nn.Module, _inputs: Any) -> None:
        # an evaluation between two steps is progress too, however long it takes
        if torch.is_grad_enabled():
            self._recorder.enter("forward")
        else:
            self._recorder.enter("evaluate")

    def _computed(self, _model: nn.Module, _inputs: Any, outputs: Any) -> None:
        if not torch.is_grad_enabled():
            self._recorder.enter("between steps")  # what follows is the user's own code
            return
        for one in tree_leaves(outputs):
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.register_hook(self._in_backward)  # type: ignore[no-untyped-call]

    def _in_backward(self, _: Tensor) -> None:
        """Backward comes to the model: nothing of it has a gradient yet."""
        loss = loss_of_backward()
        if self._loop.training.in_backward(None if loss is None else loss.item()):
            self._recorder.enter("backward")

    def _before(self, _optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if len(arguments) > 1 or named:  # torch gives the optimiser itself as the first
            raise SettingError("optimizer.step(closure) cannot be distributed; call backward(), then step()")
        self._loop.refuse_changed()
        self._recorder.enter("optimizer")
        if not self._loop.training.updates:
            for parameter in self._parameters:
                parameter.grad = None  # servers update, or nobody does


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _fixed(group: dict[str, Any]) -> dict[str, Any]:
    """What must stay as it is."""
    return {name: value for name, value in plain(group).items() if name not in ("lr", "initial_lr")}
