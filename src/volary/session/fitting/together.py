"""Judges which settings of a session fit together: settings say what they need, an exchange what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.session.fitting.abilities import cut_over_servers, keeps_versions, updates_in_groups
from volary.session.fitting.by_vectors import fit_by_vectors, fit_on_servers
from volary.session.fitting.computing import fit_compiled, fit_elsewhere, synchronised
from volary.session.fitting.members import fit_recovery, of_members
from volary.session.fitting.needs import (
    AVERAGES,
    CONSISTENCY,
    OF_REPLICAS,
    OPTIMIZER,
    PARTITION,
    SCHEDULE,
    Need,
    Trait,
)

if TYPE_CHECKING:
    from volary.session.spec import Session, Strategy


def of_strategy(strategy: Strategy) -> Iterator[Need]:
    """Yield what the strategy's own settings need. Raises SettingError for a codec of gradients if none travel."""
    codec = strategy.codec.name
    if strategy.consistency.copies and not strategy.codec.exact:
        raise SettingError(
            f"codec is {codec}, and with consistency.copies of two answers one counts, so that what the other left out "
            "would be pushed later; accepted: copies=false, or codec=none"
        )
    yield from _of_consistency(strategy)
    if strategy.codec.needs_gradients and strategy.consistency.pushes.value != "gradient":
        name = CONSISTENCY.name_of(type(strategy.consistency))
        raise SettingError(
            f"codec is {codec}, and with consistency={name} differences of parameters travel, which are no products of "
            "vectors; accepted: codec=auto, or one that encodes"
        )
    if not strategy.codec.exact:
        yield Need("codec", codec, "wire", "exchange.route=auto, or codec=none")
    if not strategy.codec.equal:
        yield Need("codec", codec, "peers", "codec.neighbours=null, so that servers get all factors")
    partition = PARTITION.name_of(type(strategy.partition))
    if of_servers := cut_over_servers(strategy):
        _fit_over_servers(strategy, partition)
    for trait in strategy.partition.needs:
        if of_servers and trait in OF_REPLICAS:
            continue
        instead = "exchange=allreduce, with route auto, ring or shared; or partition=data"
        if of_servers:
            instead = "exchange=allreduce, or one worker for each branch in partition.on"
        yield Need("partition", partition, trait, instead)
    pushes = strategy.consistency.pushes.value
    apart = pushes == "difference" and strategy.consistency.equal and strategy.partition.local_steps
    if strategy.partition.needs and pushes != "gradient" and not apart:
        setting, value, without = _deciding(strategy.consistency)
        instead = without if without and strategy.partition.local_steps else "consistency=bsp"
        raise SettingError(
            f"partition is {partition}, and with {setting}={value} each worker updates all parameters; accepted: "
            f"{instead}, or partition=data"
        )
    yield from of_members(strategy)
    if strategy.backend != "auto":
        yield Need("backend", strategy.backend, "process group", "auto")


def _fit_over_servers(strategy: Strategy, partition: str) -> None:
    """Raise SettingError for what workers that hold a replica together cannot do over servers."""
    consistency, name = strategy.consistency, CONSISTENCY.name_of(type(strategy.consistency))
    if consistency.pushes.value != "gradient" or consistency.drops:
        why = "workers that hold a replica together would have to drop contributions alike"
        if not consistency.drops:
            why = "each worker updates all parameters"
        raise SettingError(
            f"partition is {partition}, and with exchange=server and consistency={name} {why}; accepted: "
            "consistency=bsp, ssp or async, or partition=data"
        )
    if strategy.codec.needs_gradients:
        raise SettingError(
            f"codec is {strategy.codec.name}, and with partition={partition} and exchange=server layers that are cut "
            "hand over no vectors; accepted: codec=auto, or one that encodes"
        )


def _of_consistency(strategy: Strategy) -> Iterator[Need]:
    """Yield what the consistency model needs. Raises SettingError for a codec that does not go with it."""
    consistency, codec = strategy.consistency, strategy.codec
    name = CONSISTENCY.name_of(type(consistency))
    if consistency.threads != 1:
        _fit_threads(strategy)
    setting, value, without = _deciding(consistency)
    if consistency.needs_server:
        yield Need(setting, value, "versions", f"exchange=server, or {without or 'consistency=bsp'}")
    try:
        consistency.pull(strategy.workers)
    except SettingError as error:
        raise SettingError(f"consistency.{error}") from None
    if consistency.equal:
        return
    behind = getattr(strategy.exchange, "behind", False)
    if consistency.elastic and behind:
        raise SettingError(
            f"exchange.behind has no effect with consistency={name}, whose sums travel under the next steps always; "
            "accepted: behind=false"
        )
    if consistency.pull(strategy.workers) is None:  # servers can keep a centre
        trait: Trait = "peers" if consistency.fragments == 1 else "parts"
        yield Need(setting, value, trait, f"exchange=allreduce, or {without}" if without else "exchange=allreduce")
    if consistency.eager and not behind:
        raise SettingError(
            "consistency.eager is true, which counts a worker's changes before those of others are here, and without "
            "exchange.behind workers wait for these; accepted: behind=true, or eager=false"
        )
    if consistency.pushes.value == "parameters":
        yield Need("consistency", name, "wire", "exchange.route=auto")
        if not codec.exact:
            raise SettingError(
                f"codec is {codec.name}, and with consistency={name} parameters travel, of which nothing may be left "
                "out; accepted: codec=none"
            )
    elif not codec.needs_gradients and (codec.chooses or codec.at(0) != codec):
        raise SettingError(
            f"codec is {codec.name}, which changes while the run trains, and with {setting}={value} what travels is "
            "planned once; accepted: a codec that stays, without warm_up_samples"
        )


def _deciding(consistency: Any) -> tuple[str, str, str]:
    """The setting that decides what the model needs, its value, and accepted values; empty: another model."""
    if not (name := consistency.deciding):
        return "consistency", CONSISTENCY.name_of(type(consistency)), ""
    (usual,) = (one.default for one in fields(consistency) if one.name == name)
    return f"consistency.{name}", str(getattr(consistency, name)), f"{name}={'null' if usual is None else usual}"


def _fit_threads(strategy: Strategy) -> None:
    """Raise SettingError unless threads of a worker can update what it holds."""
    threads, partition = strategy.consistency.threads, PARTITION.name_of(type(strategy.partition))
    if threads < 1:
        raise SettingError(f"consistency.threads is {threads}; accepted: a whole number, 1 or more")
    if partition != "data":
        raise SettingError(
            f"partition is {partition}, and consistency.threads is {threads}: threads of a worker update all "
            "parameters, each when it likes; accepted: partition=data, or threads=1"
        )


def of_session(session: Session) -> Iterator[Need]:
    """Yield what the other sections of a session need. Raises SettingError if the consistency model cannot do it."""
    yield from _of_optimizer(session)
    _fit_with_threads(session)
    train, data = session.train, session.data
    if SCHEDULE.name_of(type(session.schedule)) == "plateau" and session.evaluate.every.unit == "never":
        raise SettingError(
            "schedule is plateau, which goes by evaluations, and evaluate.every is never; accepted: a period, or "
            "schedule=step"
        )
    if session.evaluate.text.prompt and not hasattr(data.source, "decoder"):
        raise SettingError("evaluate.text.prompt is given, and data.source is no text; accepted: text or documents")
    if train.clip_norm is not None:
        yield Need("train.clip_norm", f"{train.clip_norm:g}", "gradient norm", "train.clip_value, or no clip_norm")
        if not session.strategy.consistency.has_common_step:
            name = CONSISTENCY.name_of(type(session.strategy.consistency))
            raise SettingError(
                f"train.clip_norm is {train.clip_norm:g}, and with consistency={name} each gradient is an update of "
                "its own: no step of all workers has a gradient whose norm could be found; accepted: train.clip_value, "
                "or consistency=bsp"
            )
    if session.strategy.partition.elsewhere:
        fit_elsewhere(train.precision, session.strategy.partition, compiled=train.compile)
    if train.compile:
        fit_compiled(train.recompute, session.strategy.codec)
        yield Need("train.compile", "true", "all sums", "compile=false, or partition=data")
    if train.clip_adaptive is not None:
        value = f"{train.clip_adaptive:g}"
        yield Need("train.clip_adaptive", value, "all sums", "train.clip_value, or partition=data")
    if train.sync_batch_norm:
        strategy = session.strategy
        yield from synchronised(train.recompute, strategy.consistency, strategy.partition, compiled=train.compile)
    if train.precision != "fp32" and session.strategy.codec.needs_gradients:
        raise SettingError(
            f"train.precision is {train.precision}, and codec {session.strategy.codec.name} sends vectors "
            "of layers that compute in their weights' own type; accepted: fp32, or another codec, as codec=auto"
        )
    if train.precision == "fp16":  # an update is left out if any gradient overflowed
        yield Need("train.precision", train.precision, "whole gradient", "fp32 or bf16")
        yield Need("train.precision", train.precision, "all sums", "fp32 or bf16")
    if train.on_nonfinite == "skip":
        _fit_left_out(session.strategy)
        yield Need("train.on_nonfinite", "skip", "one update", "stop, or partition.updates=batch")
    yield from _of_average(session)
    if session.strategy.recover == "memory":
        fit_recovery(session)
    least = session.strategy.workers * train.accumulate
    if session.strategy.balance == "auto" and session.strategy.workers > 1 and data.batch_size <= least:
        raise SettingError(
            f"strategy.balance is auto, and data.batch_size={data.batch_size} leaves each worker the samples that it "
            f"needs at least; accepted: equal, or a batch_size above {least}"
        )
    if data.batch.largest(data.batch_size) != data.batch_size:
        if not session.strategy.consistency.equal and session.strategy.consistency.pushes.value == "difference":
            raise SettingError(
                "data.batch grows, and trying sizes would move the centre that workers pull; accepted: fixed"
            )
        yield Need("data.batch", "one that grows", "steps together", "fixed")
        yield Need("data.batch", "one that grows", "all parameters", "fixed, or partition.level=2")


def _fit_left_out(strategy: Strategy) -> None:
    """Raise SettingError where an update comes before all know of a loss that is no number."""
    if updates_in_groups(strategy):
        raise SettingError(
            "train.on_nonfinite is skip, and workers of a group that take local steps together have updated before all "
            "know of a loss; accepted: stop, or consistency=bsp"
        )


def _fit_with_threads(session: Session) -> None:
    """Raise SettingError for what threads that update without locks cannot do."""
    if session.strategy.consistency.threads == 1:
        return
    train, optimizer = session.train, session.optimizer
    why = f"strategy.consistency.threads is {session.strategy.consistency.threads}, and"
    if getattr(optimizer, "together", False):
        name = OPTIMIZER.name_of(type(optimizer))
        raise SettingError(f"{why} optimizer {name} goes from one update to the next; accepted: threads=1, or sgd")
    if train.compile or train.recompute:
        setting = "compile" if train.compile else "recompute"
        raise SettingError(f"{why} train.{setting} is of one thread's layers; accepted: threads=1, or neither")
    if session.strategy.workers == 1 and (name := AVERAGES.name_of(type(train.average))) != "none":
        raise SettingError(
            f"{why} train.average is {name}: there is no moment between two updates; accepted: none, or threads=1"
        )


def _of_optimizer(session: Session) -> Iterator[Need]:
    """Yield what the update rule needs. Raises SettingError for settings that it does not follow."""
    optimizer, train = session.optimizer, session.train
    if getattr(optimizer, "together", False):
        name = OPTIMIZER.name_of(type(optimizer))
        if train.parameters or train.layer_decay != 1:
            setting, accepted = ("parameters", "none of them") if train.parameters else ("layer_decay", "1")
            raise SettingError(
                f"train.{setting} is set, and optimizer {name} updates all parameters together; accepted: {accepted}, "
                "or optimizer=adam"
            )
        served = keeps_versions(session.strategy)
        if by_vectors := getattr(optimizer, "by_vectors", False):
            fit_by_vectors(optimizer, train, session.data, served=served)
        if by_vectors and served:
            strategy = session.strategy
            fit_on_servers(optimizer, train, strategy.consistency, strategy.codec, strategy.exchange)
        if not session.strategy.consistency.at(0, 0.0).updates and not (by_vectors and served):
            instead = "optimizer=adam, which updates each parameter by itself"
            yield Need("optimizer", name, "whole gradient", instead)
            yield Need("optimizer", name, "all sums", instead)
    elif not getattr(optimizer, "elementwise", True):
        instead = "optimizer=adam, which updates each value on its own, or partition=data or pipeline"
        yield Need("optimizer", OPTIMIZER.name_of(type(optimizer)), "whole tensors", instead)
    if getattr(optimizer, "first_rate_only", False):
        name, schedule = OPTIMIZER.name_of(type(optimizer)), SCHEDULE.name_of(type(session.schedule))
        if schedule != "constant" or str(getattr(session.schedule, "warmup", 0)) != "0":
            what = schedule if schedule != "constant" else "constant with a warmup"
            raise SettingError(
                f"schedule is {what}, and optimizer {name} takes the learning rate for its first step alone; accepted: "
                "schedule=constant, or optimizer=sgd"
            )


def _of_average(session: Session) -> Iterator[Need]:
    name = AVERAGES.name_of(type(session.train.average))
    if name != "none":
        yield Need("train.average", name, "one update", "none, or partition.updates=batch")
        if session.strategy.consistency.eager:
            raise SettingError(
                f"train.average is {name}, and with consistency.eager each worker takes the model to be another one; "
                "accepted: none, or eager=false"
            )
