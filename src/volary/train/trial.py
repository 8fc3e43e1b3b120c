"""Tries a session before training begins: two real samples through network, loss and backward.

`volary check` asks it, and rank 0 of every run, before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from volary.data.choosing.weights import weights_of
from volary.data.remarks import remarks_of
from volary.errors import BadInput, DataError, SettingError, TargetError
from volary.errors.raised import raised
from volary.exchange.choice.choices import refuse_strangers
from volary.exchange.choice.rows import StepEstimate, estimated
from volary.naming import trained_parameters
from volary.network.dry_run import unchanged
from volary.network.layer_graph import layer_graph
from volary.session.values.reference import UserObject, name_of
from volary.train.model import update_rule
from volary.train.predicting.text_writer import TextWriter
from volary.train.recording.reads import dropped
from volary.train.state.seeds import kept_generators
from volary.train.trying import partition_choice, step_cost
from volary.train.trying.first_samples import first_and_last, first_samples, share_of
from volary.train.trying.fitting_memory import remarks_of_memory, why_too_large
from volary.train.trying.run_length import remarks_of_length
from volary.train.update.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor

    from volary.placement import Place
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder

TIMED_SAMPLES = 8  # of a worker's share: enough that a step's time is about in proportion to them


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


def try_session(model: Model, device: torch.device, workers_here: int, started: bool) -> TrialResult:
    """Let two samples go through all of it, on `device`. Raises BadInput for what cannot train.

    workers_here: on this machine, `started` or not. What a step takes is measured for those that are not, and where a
    partition is to be chosen, or to fit into a budget. Nothing is changed by it: no value of the network, no random
    generator, no position in the data.
    """
    session = model.session
    with kept_generators():
        warnings = [*remarks_of(model.samples), *remarks_of_length(model)]
        named = list(trained_parameters(model.module).items())
        trained = [parameter for _, parameter in named]
        if model.frozen.rules and not trained:
            raise SettingError("train.freeze leaves no parameter to train; accepted: rules that do not fit all of them")
        refuse_strangers(session.strategy.codec, model.module)
        chooses = session.strategy.partition.chooses
        if not chooses:  # before its gradients are there: they may be what does not fit
            warnings += remarks_of_memory(session, model.module, device, workers_here, started)
        if reason := why_too_large(trained, device):
            partition_choice.refuse_unknown(session.strategy, reason)
            return TrialResult([*warnings, reason])
        weights_of(model.samples, session.data.sampling)
        _ = model.mixing  # it may be refused
        numbers = first_and_last(session, model.samples)
        TextWriter.of(model)
        inputs, targets = first_samples(session, model.samples, numbers)
        try:
            _dry_run(model, device, inputs, targets)
        except TargetError as error:
            raise error.of(numbers[error.place]) from None
        estimate = _estimate(model, device, inputs, targets) if session.strategy.codec.chooses else None
        if isinstance(session.optimizer, UserObject) or session.train.parameters or session.train.layer_decay != 1:
            update_rule(session, model.factors)[0]([name for name, _ in named])(list(trained))
        warnings += dropped(model.samples, "train")
        if session.evaluate.every.unit != "never":
            _evaluate(model, device)
            warnings += [remark for remark in remarks_of(model.validation) if remark not in warnings]
            warnings += dropped(model.validation, "test")
        network = _layers(model, inputs.to(device))
        asked = chooses or session.strategy.memory is not None
        cost = _cost(model, device, inputs, targets, workers_here) if asked or not started else None
        kept = cost.activations_bytes / share_of(session) if cost else None
        predicted = partition_choice.predicted(model, network, kept)
        if chooses and predicted is not None:
            warnings += remarks_of_memory(predicted.own.session, model.module, device, workers_here, started)
    return TrialResult(warnings, estimate, network, cost, predicted)


def try_first(model: Model, device: torch.device, place: Place, recorder: Recorder) -> TrialResult | None:
    """Let rank 0 try the session for all ranks of a run and record warnings; the others get nothing.

    Raises BadInput, as `try_session`.
    """
    if not place.leads:
        return None
    recorder.starting("trying two samples")
    # of a launcher's workers nobody knows how many are on this machine
    here = place.world_size if place.launcher in ("local", "lab") else 1
    tried = try_session(model, device, here, started=True)
    for text in tried.warnings:
        recorder.warn_once(text)
    if tried.network is not None:
        product_per_s = Precision(model.session.train.precision, device).product_per_s(device)
        recorder.network(tried.network | {"product_per_s": product_per_s})
    if model.session.strategy.partition.chooses and tried.predicted is not None:
        recorder.event("partition", text=tried.predicted.why)
    return tried


def _dry_run(model: Model, device: torch.device, inputs: Tensor, targets: Tensor) -> None:
    with torch.enable_grad():
        model.flow("try").dry_run(
            inputs.to(device),
            targets.to(device),
            model.classes or None,
            network=name_of(model.session.network),
            loss=name_of(model.session.loss),
            casting=Precision(model.session.train.precision, device).casting(),
        )


def _estimate(model: Model, device: torch.device, inputs: Tensor, targets: Tensor) -> StepEstimate:
    """Time these samples, repeated up to TIMED_SAMPLES. The network has run before: its first pass takes longer."""
    some = torch.arange(min(share_of(model.session), TIMED_SAMPLES)) % len(inputs)
    with estimated(model.module, len(some)) as estimate:
        _dry_run(model, device, inputs[some], targets[some])
    return estimate


def _cost(model: Model, device: torch.device, inputs: Tensor, targets: Tensor, workers_here: int) -> step_cost.StepCost:
    """Measure with these samples, repeated."""

    def learn(samples: int) -> None:
        some = torch.arange(samples) % len(inputs)
        _dry_run(model, device, inputs[some], targets[some])

    share, passes = share_of(model.session), model.session.train.accumulate
    return step_cost.step_cost(model.module, learn, share, passes, workers_here)


def _layers(model: Model, inputs: Tensor) -> dict[str, Any] | None:
    """The layers as `layer_graph` has them; None if it cannot: what is only shown ends no run."""
    try:
        return layer_graph(model.module, inputs, Precision(model.session.train.precision, inputs.device).casting())
    except Exception:  # code that has run before, and takes hooks or torch's function modes for something else
        return None


def _evaluate(model: Model, device: torch.device) -> None:
    """One sample of the validation data, as an evaluation takes it."""
    inputs, targets = first_samples(model.session, model.validation, [0])
    try:
        with unchanged(model.module):
            model.flow("try").measure(inputs.to(device), targets.to(device))
    except TargetError as error:
        raise DataError(f"validation data: {error.of(0)}") from None
    except BadInput:
        raise
    except Exception as error:
        network = name_of(model.session.network)
        raise SettingError(
            f"evaluating network {network!r} on a sample of the validation data {raised(error).predicate}"
        ) from error
