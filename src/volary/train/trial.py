"""Tries a session before training begins: two real samples through network, loss and backward.

`volary check` asks it, and rank 0 of every run, before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.data.choosing.weights import weights_of
from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.data.remarks import remarks_of
from volary.errors import BadInput, CorruptSample, DataError, SettingError, TargetError
from volary.errors.raised import raised
from volary.exchange.choice.choices import refuse_strangers
from volary.exchange.choice.rows import StepEstimate, estimated
from volary.naming import trained_parameters
from volary.network.dry_run import unchanged
from volary.network.layer_graph import layer_graph
from volary.run.machine.memory import IMPORTED_BYTES, available_bytes, judge
from volary.session.spec import MOST_STEPS
from volary.session.values.reference import UserObject, name_of
from volary.train.model import update_rule
from volary.train.predicting.text_writer import TextWriter
from volary.train.recording.reads import dropped
from volary.train.state.seeds import kept_generators
from volary.train.trying import partition_choice, step_cost, worker_memory
from volary.train.update.precision import Precision
from volary.train.update.session_schedule import in_steps

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.data.samples import Samples
    from volary.placement import Place
    from volary.session.spec import Session
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder

TIMED_SAMPLES = 8  # of a worker's share: enough that a step's time is about in proportion to them

_GIB = 1 << 30


@dataclass(frozen=True)
class TrialResult:
    """The result of trying a session. estimate: of a step's samples, rows and seconds, if its codec chooses by them;
    None if the network did not run. cost: of a worker's step, if that was measured.

    network: as `layer_graph` has it; None if that was not looked at. predicted: what a step takes with each partition;
    None: not known.
    """

    warnings: list[str]
    estimate: StepEstimate | None = None
    network: dict[str, Any] | None = None
    cost: step_cost.StepCost | None = None
    predicted: partition_choice.Predicted | None = None


def try_session(session: Session, model: Model, device: torch.device, workers_here: int, started: bool) -> TrialResult:
    """Let two samples go through all of it, on `device`. Raises BadInput for what cannot train.

    workers_here: on this machine, `started` or not. What a step takes is measured for those that are not, and where a
    partition is to be chosen, or to fit into a budget. Nothing is changed by it: no value of the network, no random
    generator, no position in the data.
    """
    with kept_generators():
        warnings = [*remarks_of(model.samples), *_length(session, model)]
        named = list(trained_parameters(model.module).items())
        trained = [parameter for _, parameter in named]
        refuse_strangers(session.strategy.codec, model.module)
        chooses = session.strategy.partition.chooses
        if not chooses:  # before its gradients are there: they may be what does not fit
            warnings += _memory(session, model.module, device, workers_here, started)
        if reason := _too_large(trained, device):
            partition_choice.refuse_unknown(session.strategy, reason)
            return TrialResult([*warnings, reason])
        weights_of(model.samples, session.data.sampling)
        _ = model.mixing  # it may be refused
        numbers = _first_and_last(session, model.samples)
        TextWriter.of(model)
        inputs, targets = _read(session, model.samples, numbers)
        try:
            _dry_run(session, model, device, inputs, targets)
        except TargetError as error:
            raise error.of(numbers[error.place]) from None
        estimate = _estimate(session, model, device, inputs, targets) if session.strategy.codec.chooses else None
        if isinstance(session.optimizer, UserObject) or session.train.parameters or session.train.layer_decay != 1:
            update_rule(session, model.factors)[0]([name for name, _ in named])(list(trained))
        warnings += dropped(model.samples, "train")
        if session.evaluate.every.unit != "never":
            _evaluate(session, model, device)
            warnings += [remark for remark in remarks_of(model.validation) if remark not in warnings]
            warnings += dropped(model.validation, "test")
        network = _layers(session, model.module, inputs.to(device))
        asked = chooses or session.strategy.memory is not None
        cost = _cost(session, model, device, inputs, targets, workers_here) if asked or not started else None
        kept = cost.activations_bytes / _share(session) if cost else None
        predicted = partition_choice.predicted(model, network, kept)
        if chooses and predicted is not None:
            warnings += _memory(predicted.own.session, model.module, device, workers_here, started)
    return TrialResult(warnings, estimate, network, cost, predicted)


def try_first(
    session: Session, model: Model, device: torch.device, place: Place, recorder: Recorder
) -> TrialResult | None:
    """Let rank 0 try the session for all ranks of a run and record warnings; the others get nothing.

    Raises BadInput, as `try_session`.
    """
    if place.rank:
        return None
    recorder.starting("trying two samples")
    # of a launcher's workers nobody knows how many are on this machine
    here = place.world_size if place.launcher in ("local", "lab") else 1
    tried = try_session(session, model, device, here, started=True)
    for text in tried.warnings:
        recorder.warn_once(text)
    if tried.network is not None:
        product_per_s = Precision(session.train.precision, device).product_per_s(device)
        recorder.network(tried.network | {"product_per_s": product_per_s})
    if session.strategy.partition.chooses and tried.predicted is not None:
        recorder.event("partition", text=tried.predicted.why)
    return tried


def _dry_run(session: Session, model: Model, device: torch.device, inputs: Tensor, targets: Tensor) -> None:
    with torch.enable_grad():
        model.flow("try").dry_run(
            inputs.to(device),
            targets.to(device),
            model.classes or None,
            network=name_of(session.network),
            loss=name_of(session.loss),
            casting=Precision(session.train.precision, device).casting(),
        )


def _estimate(session: Session, model: Model, device: torch.device, inputs: Tensor, targets: Tensor) -> StepEstimate:
    """Time these samples, repeated up to TIMED_SAMPLES. The network has run before: its first pass takes longer."""
    some = torch.arange(min(_share(session), TIMED_SAMPLES)) % len(inputs)
    with estimated(model.module, len(some)) as estimate:
        _dry_run(session, model, device, inputs[some], targets[some])
    return estimate


def _cost(
    session: Session, model: Model, device: torch.device, inputs: Tensor, targets: Tensor, workers_here: int
) -> step_cost.StepCost:
    """Measure with these samples, repeated."""

    def learn(samples: int) -> None:
        some = torch.arange(samples) % len(inputs)
        _dry_run(session, model, device, inputs[some], targets[some])

    return step_cost.step_cost(model.module, learn, _share(session), session.train.accumulate, workers_here)


def _layers(session: Session, module: nn.Module, inputs: Tensor) -> dict[str, Any] | None:
    """The layers as `layer_graph` has them; None if it cannot: what is only shown ends no run."""
    try:
        return layer_graph(module, inputs, Precision(session.train.precision, inputs.device).casting())
    except Exception:  # code that has run before, and takes hooks or torch's function modes for something else
        return None


def _length(session: Session, model: Model) -> list[str]:
    """Whether batches, steps and warm-up go with the data. Raises SettingError for more steps than there can be, and
    for a schedule in epochs that have no length.
    """
    feed, warnings = Feed(model.samples, session.data.batch_size, shuffle=False), []
    steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
    if steps > MOST_STEPS:
        raise SettingError(
            f"train.epochs is {session.train.epochs:g}, which are {steps:,} steps; accepted: up to {MOST_STEPS:,} steps"
        )
    if feed.samples is not None and session.data.batch_size > feed.samples:
        warnings.append(
            f"data.batch_size is {session.data.batch_size:,}, more than the training data has ({feed.samples:,}): "
            "each step learns from all of them"
        )
    warmup = getattr(in_steps(session.schedule, feed.steps_per_epoch), "warmup", 0)
    if warmup > steps:
        warnings.append(
            f"schedule.warmup is {warmup:,}, longer than the run of {steps:,} steps: the learning rate never reaches "
            "what optimizer.lr says"
        )
    return warnings


def _memory(session: Session, module: nn.Module, device: torch.device, workers_here: int, started: bool) -> list[str]:
    """Whether the workers fit into this machine's memory; activations, which depend on the batch, come on top."""
    if device.type != "cpu":
        return []
    parameters, memory = list(module.parameters()), worker_memory.worker_memory(session, module)
    # gradients live once, in their buckets
    each, once = memory.gradients + memory.optimizer + memory.shares + memory.codec, 0
    if not started:
        each, once = each + memory.process + memory.parameters, IMPORTED_BYTES
    needed = once + workers_here * each + memory.servers
    count = sum(parameter.numel() for parameter in parameters)
    takes = f"{workers_here} workers take" if workers_here > 1 else "a worker takes"
    sentence = judge(
        needed,
        available_bytes(),
        f"network {name_of(session.network)!r} has {count:,} parameters; with gradients and the optimiser's "
        f"state, {takes}{' another' * started}",
        "fewer workers, a smaller network, or an optimiser that keeps less",
    )
    return [sentence] if sentence else []


def _too_large(trained: list[nn.Parameter], device: torch.device) -> str:
    """Why the dry run is left out; empty if it is not."""
    gradients, available = sum(parameter.nbytes for parameter in trained), available_bytes()
    if device.type != "cpu" or available is None or 2 * gradients <= available:
        return ""
    return (
        f"the network was not tried on samples: its gradients take {gradients / _GIB:.1f} GiB, and "
        f"{available / _GIB:.1f} GiB are available"
    )


def _first_and_last(session: Session, samples: Samples | Stream) -> list[int]:
    """The numbers of the samples to try: one if there is one, or if a worker gets one at a time; a stream's is 0."""
    numbers = [0, 0] if isinstance(samples, Stream) else sorted({0, len(samples) - 1})
    return numbers[: _share(session)]


def _share(session: Session) -> int:
    """How many samples a worker has in a pass, if all have as many."""
    share = session.data.batch_size // (session.strategy.shares * session.train.accumulate)
    return max(2, share) if session.train.sync_batch_norm else share  # batch norms go by the samples of all


def _read(session: Session, samples: Samples | Stream, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """These samples; a stream gives only the first ones. Raises DataError, with a sample's number."""
    if not isinstance(samples, Stream):
        return _fetched(session, samples, numbers)
    inputs, targets = samples.first()
    return inputs[numbers], targets[numbers]


def _fetched(session: Session, samples: Samples, numbers: list[int]) -> tuple[Tensor, Tensor]:
    try:
        return _first_readable(session, samples, numbers)
    except BadInput:
        raise
    except Exception as error:
        number, cause = _culprit(samples, numbers) or (numbers[0], error)
        source = name_of(session.data.source)
        raise DataError(f"data {source!r}: sample {number} {raised(cause).predicate}") from cause


def _first_readable(session: Session, samples: Samples, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """These samples; of corrupt ones, where the session lets them be skipped, the next that is not."""
    for _ in range(len(samples)):
        try:
            return samples.fetch(torch.tensor(numbers))
        except CorruptSample as problem:
            if not session.data.skip_corrupt or problem.index is None:
                raise
            numbers = [(number + 1) % len(samples) if number == problem.index else number for number in numbers]
    return samples.fetch(torch.tensor(numbers))


def _culprit(samples: Samples, numbers: list[int]) -> tuple[int, Exception] | None:
    """The first sample that cannot be read on its own, and what it raises."""
    for number in numbers:
        try:
            samples.fetch(torch.tensor([number]))
        except Exception as error:
            return number, error
    return None


def _evaluate(session: Session, model: Model, device: torch.device) -> None:
    """One sample of the validation data, as an evaluation takes it."""
    inputs, targets = _read(session, model.validation, [0])
    try:
        with unchanged(model.module):
            model.flow("try").measure(inputs.to(device), targets.to(device))
    except TargetError as error:
        raise DataError(f"validation data: {error.of(0)}") from None
    except BadInput:
        raise
    except Exception as error:
        network = name_of(session.network)
        raise SettingError(
            f"evaluating network {network!r} on a sample of the validation data {raised(error).predicate}"
        ) from error
