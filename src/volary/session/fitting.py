"""Judges which settings fit together, in one place: settings say what they need, an exchange what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from volary.errors import SettingError
from volary.session.judging.by_vectors import fit_by_vectors
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from volary.session.spec import Session, Strategy, Train

Trait = Literal[
    "versions",
    "whole gradient",
    "gradient norm",
    "all sums",
    "all parameters",
    "wire",
    "peers",
    "process group",
    "steps together",
    "shares",
    "own loop",
    "one update",
]
"""versions: parameters that differ in age are told apart. whole gradient: all gradients are there before a parameter
changes. gradient norm: the norm of all is known before one does. all sums: each worker has those of all gradients.
all parameters: each worker has them between two steps. wire: values travel. peers: workers send to each other. process
group: they are in one of torch. steps together: all workers share each batch. shares: a value may be kept by one worker
alone. own loop: a loop of one's own trains so. one update: all values change together, once a step."""
TRAITS: frozenset[str] = frozenset(get_args(Trait))
CONSISTENCY, EXCHANGE, PARTITION, ENGINE = (
    Choice(f"volary.{room}") for room in ("consistency", "exchange", "partition", "engine")
)
OF_REPLICAS: frozenset[Trait] = frozenset({"steps together", "whole gradient"})  # workers of one have them over servers
AVERAGES = Choice("volary.train.averages")
OPTIMIZER, SCHEDULE = (Choice(f"volary.train.{room}") for room in ("optimizers", "schedules"))


@dataclass(frozen=True)
class Need:
    """A setting that works only where the exchange does not lack `trait`. instead: what is accepted."""

    setting: str
    value: str
    trait: Trait
    instead: str


def fit(strategy: Strategy, needs: Iterable[Need]) -> None:
    """Raise SettingError for the first need that the strategy's exchange does not meet."""
    for need in needs:
        if why := lacks(strategy).get(need.trait):
            raise SettingError(f"{need.setting} is {need.value}, and {why}; accepted: {need.instead}")


def lacks(strategy: Strategy) -> dict[str, str]:
    """The abilities that the exchange lacks, with reasons; one worker that keeps all itself waits for nobody."""
    found = {**strategy.exchange.lacks, **strategy.partition.lacks}
    return {trait: why for trait, why in found.items() if trait == "versions" or _travels(strategy)}


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
    if of_servers := _cut_over_servers(strategy):
        _fit_over_servers(strategy, partition)
    for trait in strategy.partition.needs:
        if of_servers and trait in OF_REPLICAS:
            continue
        yield Need(
            "partition", partition, trait, "exchange=allreduce, with route auto, ring or shared; or partition=data"
        )
    pushes = strategy.consistency.pushes.value
    apart = pushes == "difference" and strategy.consistency.equal and strategy.partition.local_steps
    if strategy.partition.needs and pushes != "gradient" and not apart:
        setting, value, without = _deciding(strategy.consistency)
        instead = without if without and strategy.partition.local_steps else "consistency=bsp"
        why = "each worker updates all parameters"
        if not strategy.partition.chooses and strategy.partition.mesh(strategy.workers).shards_in_groups:
            why = "each worker of a group keeps a share of its update alone"
        raise SettingError(
            f"partition is {partition}, and with {setting}={value} {why}; accepted: {instead}, or partition=data"
        )
    if strategy.recover == "memory":
        yield from _of_recovery(strategy)
    elif strategy.spares:
        raise SettingError(
            f"spares is {strategy.spares}, and with recover=checkpoint nobody takes the place of a lost worker; "
            "accepted: 0, or recover=memory"
        )
    comes_and_goes = strategy.recover == "memory" or (_keeps_versions(strategy) and strategy.consistency.elastic)
    if strategy.between is not None and not comes_and_goes:
        raise SettingError(
            f"workers is {strategy.between}, and with recover={strategy.recover} and consistency="
            f"{CONSISTENCY.name_of(type(strategy.consistency))} they are fixed; accepted: a number, or recover=memory"
        )
    if strategy.balance == "auto":
        _fit_balance(strategy)
    if strategy.backend != "auto":
        yield Need("backend", strategy.backend, "process group", "auto")


def _cut_over_servers(strategy: Strategy) -> bool:
    """Whether workers that hold replicas together exchange their parts with servers."""
    if not _keeps_versions(strategy) or strategy.partition.chooses:
        return False
    mesh = strategy.partition.mesh(strategy.workers)
    return bool(mesh.shares == mesh.data != mesh.size)


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


def _of_recovery(strategy: Strategy) -> Iterator[Need]:
    """Yield what going on without a lost worker needs. Raises SettingError where only that one had what is needed."""
    why = "recover is memory, and with"
    if _keeps_versions(strategy):
        raise SettingError(
            f"{why} exchange={EXCHANGE.name_of(type(strategy.exchange))} servers keep the parameters, whichever "
            "worker is lost; accepted: recover=checkpoint, or exchange=allreduce"
        )
    if strategy.partition.chooses or strategy.partition.mesh(strategy.workers).data != strategy.workers:
        raise SettingError(
            f"{why} partition={PARTITION.name_of(type(strategy.partition))} no other worker has what the lost one "
            "kept; accepted: recover=checkpoint, or partition=data"
        )
    if strategy.spares and strategy.consistency.fragments > 1:
        raise SettingError(
            f"spares is {strategy.spares}, and with consistency.fragments={strategy.consistency.fragments} these are "
            "exchanged in turn, which a spare does not know; accepted: 0, or fragments=1"
        )
    if strategy.backend not in ("auto", "gloo"):
        raise SettingError(f"{why} backend={strategy.backend} waits for a lost worker do not end; accepted: auto, gloo")
    yield Need("recover", "memory", "whole gradient", "exchange.behind=false, or recover=checkpoint")


def _fit_balance(strategy: Strategy) -> None:
    """Raise SettingError where workers do not divide each batch among them alone, and wait for each other."""
    why = "balance is auto, and with"
    if _keeps_versions(strategy):
        name = EXCHANGE.name_of(type(strategy.exchange))
        raise SettingError(f"{why} exchange={name} servers hand out samples; accepted: equal, or exchange=allreduce")
    if strategy.consistency.pushes.value != "gradient":
        raise SettingError(
            f"{why} consistency={CONSISTENCY.name_of(type(strategy.consistency))} workers learn from samples of their "
            "own between two means; accepted: equal, or consistency=bsp"
        )
    mesh = None if strategy.partition.chooses else strategy.partition.mesh(strategy.workers)
    if mesh is None or mesh.data * mesh.shard != strategy.workers:
        raise SettingError(
            f"{why} partition={PARTITION.name_of(type(strategy.partition))} several workers compute with the same "
            "samples; accepted: equal, or partition=data or sharded"
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
    if consistency.eager and not behind:
        raise SettingError(
            "consistency.eager is true, which counts a worker's changes before those of others are here, and without "
            "exchange.behind workers wait for these; accepted: behind=true, or eager=false"
        )
    if consistency.pull(strategy.workers) is None:  # servers can keep a centre
        yield Need(setting, value, "peers", f"exchange=allreduce, or {without}" if without else "exchange=allreduce")
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
    """What decides what the model needs: a setting, its value, and what is accepted instead; empty: another model."""
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
    if session.evaluate.text.prompt and type(data.source).__module__ != "volary.data.sources.text":
        raise SettingError("evaluate.text.prompt is given, and data.source is no text; accepted: data.source=text")
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
        _fit_elsewhere(train, session.strategy.partition)
    if train.compile:
        _fit_compiled(session)
        yield Need("train.compile", "true", "all sums", "compile=false, or partition=data")
    if train.clip_adaptive is not None:
        value = f"{train.clip_adaptive:g}"
        yield Need("train.clip_adaptive", value, "all sums", "train.clip_value, or partition=data")
    if train.sync_batch_norm:
        yield from _synchronised(train, session.strategy)
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
        _fit_recovery(session)
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
    if _updates_in_groups(strategy):
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


def _fit_recovery(session: Session) -> None:
    """Raise SettingError for what cannot go on with fewer workers in the middle of an epoch."""
    data, why = session.data, "strategy.recover is memory, and"
    engine = ENGINE.name_of(type(session.engine))
    if session.strategy.spares and engine != "local":
        raise SettingError(
            f"strategy.spares is {session.strategy.spares}, and engine {engine} starts as many workers as train; "
            "accepted: 0, or engine=local"
        )
    if any(rule.until.unit != "never" for rule in session.train.freeze):
        raise SettingError(f"{why} train.freeze thaws layers by checkpoints; accepted: until=never, or checkpoint")
    if data.batch.largest(data.batch_size) != data.batch_size:
        raise SettingError(f"{why} data.batch tries sizes, which no step repeats; accepted: fixed, or checkpoint")
    if session.train.sync_batch_norm:
        raise SettingError(
            f"{why} train.sync_batch_norm is true, whose layers are bound to all workers; accepted: "
            "false, or checkpoint"
        )


def _fit_elsewhere(train: Train, partition: Any) -> None:
    """Raise SettingError for ways to compute that processes which are no workers do not know."""
    said = f"strategy.partition is {PARTITION.name_of(type(partition))}: {partition.elsewhere}"
    for name, value, accepted in (("precision", train.precision, "fp32"), ("compile", train.compile, False)):
        if value != accepted:
            raise SettingError(f"train.{name} is {str(value).lower()}, and {said}; accepted: {str(accepted).lower()}")


def _fit_compiled(session: Session) -> None:
    """Raise SettingError for what needs to see layers run one by one."""
    codec = session.strategy.codec
    if session.train.recompute:
        raise SettingError(
            "train.compile is true, and train.recompute chooses layers that run one by one, where compiled code itself "
            "chooses what to keep; accepted: one of the two"
        )
    if codec.needs_gradients or codec.chooses:
        raise SettingError(
            f"train.compile is true, and codec {codec.name} looks at layers as they run; accepted: compile=false, or "
            "another codec, as int8"
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
        served = _keeps_versions(session.strategy)
        if by_vectors := getattr(optimizer, "by_vectors", False):
            fit_by_vectors(session, served=served)
        if not session.strategy.consistency.at(0, 0.0).updates and not (by_vectors and served):
            instead = "optimizer=adam, which updates each parameter by itself"
            yield Need("optimizer", name, "whole gradient", instead)
            yield Need("optimizer", name, "all sums", instead)
    if getattr(optimizer, "first_rate_only", False):
        name, schedule = OPTIMIZER.name_of(type(optimizer)), SCHEDULE.name_of(type(session.schedule))
        if schedule != "constant" or str(getattr(session.schedule, "warmup", 0)) != "0":
            what = schedule if schedule != "constant" else "constant with a warmup"
            raise SettingError(
                f"schedule is {what}, and optimizer {name} takes the learning rate for its first step alone; accepted: "
                "schedule=constant, or optimizer=sgd"
            )


def _synchronised(train: Train, strategy: Strategy) -> Iterator[Need]:
    """Yield what batch norms of all workers need. Raises SettingError where workers do not run one network each."""
    why = "train.sync_batch_norm is true, and with"
    if train.compile or train.recompute:
        setting = "train.compile" if train.compile else "train.recompute"
        raise SettingError(f"{why} {setting} layers do not run in one order on all workers; accepted: one of the two")
    yield Need("train.sync_batch_norm", "true", "steps together", "exchange=allreduce, or false")
    if strategy.consistency.pushes.value != "gradient":
        name = CONSISTENCY.name_of(type(strategy.consistency))
        raise SettingError(
            f"{why} consistency={name} workers' networks differ, so that their batches are not one; accepted: "
            "consistency=bsp, or false"
        )
    if "steps together" in strategy.partition.needs:
        name = PARTITION.name_of(type(strategy.partition))
        raise SettingError(
            f"{why} partition={name} workers hold parts of one network; accepted: partition=data or sharded, or false"
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


def of_own_loop(strategy: Strategy, *, early_update: bool) -> Iterator[Need]:
    """Yield what a loop of one's own needs. early_update: it looks at no gradients.

    Raises SettingError for a budget of memory, which nobody can hold it to.
    """
    if strategy.memory is not None:
        raise SettingError(
            f"strategy.memory is {strategy.memory}, and what a loop of your own takes is not known before it begins; "
            "accepted: null"
        )
    partition = PARTITION.name_of(type(strategy.partition))
    if strategy.partition.elsewhere:
        raise SettingError(
            f"strategy.partition is {partition}: {strategy.partition.elsewhere}, and a loop of your own computes them "
            "itself; accepted: partition=data"
        )
    whole = "partition.level=2 with early_update=true, as your loop may look at all parameters"
    if _cut_over_servers(strategy):
        raise SettingError(
            f"strategy.partition is {partition}, and with exchange=server a loop of your own reads all parameters; "
            "accepted: exchange=allreduce, or a session"
        )
    yield Need("strategy.partition", partition, "all parameters", whole)
    yield Need(
        "strategy.partition",
        partition,
        "own loop",
        "partition=data, tensor, hybrid, pipeline, mesh, or sharded up to level 2",
    )
    _fit_own_groups(strategy, partition)
    if early_update:
        fit_early(strategy)
    _fit_own_consistency(strategy)
    if strategy.balance == "auto":
        raise SettingError(
            "strategy.balance is auto, and the loop is your own, which has batches made ahead; accepted: equal"
        )
    if strategy.recover == "memory":
        raise SettingError(
            "strategy.recover is memory, and the loop is your own: no one can take it back to the step before; "
            "accepted: checkpoint"
        )
    # what it does not look at may be late: what servers update, early updates, means of parameters
    if _keeps_versions(strategy) or early_update or strategy.consistency.pushes.value != "gradient":
        return
    name = EXCHANGE.name_of(type(strategy.exchange))
    behind = "early_update=true, or allreduce without behind, as your loop sees the gradients of each step otherwise"
    yield Need("strategy.exchange", name, "whole gradient", behind)
    early = "early_update=true, or partition=data, as your loop sees the gradients of each step otherwise"
    if not in_parts(strategy):
        yield Need("strategy.partition", partition, "all sums", early)


def _fit_own_consistency(strategy: Strategy) -> None:
    """Raise SettingError for a consistency model that has to know what a loop of one's own does, or decide it."""
    consistency, name = strategy.consistency, CONSISTENCY.name_of(type(strategy.consistency))
    if consistency.threads > 1:
        raise SettingError(
            f"strategy.consistency.threads is {consistency.threads}, and a loop of your own runs in one "
            "thread, which Volary cannot divide; accepted: threads=1, or a session"
        )
    if consistency.pieces(strategy.workers) is not None:
        raise SettingError(
            f"strategy.consistency is {name}, and the loop of your own says what each worker computes, so that none "
            "can take another's portion; accepted: backup, or a session"
        )
    if _keeps_versions(strategy) and consistency.pull(strategy.workers) is not None:
        raise SettingError(
            f"strategy.consistency is {name}, and with exchange=server the loop of your own would have to say which of "
            "its two models it reads; accepted: exchange=allreduce, or a session"
        )


def _fit_own_groups(strategy: Strategy, partition: str) -> None:
    """Raise SettingError for updates that several workers make together between two steps of a loop of one's own."""
    if _updates_in_groups(strategy):
        raise SettingError(
            f"strategy.partition is {partition}, and with local steps workers of a group that have samples of their "
            "own would update within your step; accepted: tensor or pipeline within groups, or a session"
        )


def in_parts(strategy: Strategy) -> bool:
    """Whether workers hold parts of layers, so that each step is one of them together."""
    return strategy.workers > 1 and "steps together" in strategy.partition.needs


def fit_early(strategy: Strategy) -> None:
    """Raise SettingError where no update of a loop of one's own can come after its step."""
    if in_parts(strategy):
        raise SettingError(
            f"early_update is true, and with partition={PARTITION.name_of(type(strategy.partition))} each step updates "
            "parts of layers before it ends; accepted: early_update=false"
        )


def _updates_in_groups(strategy: Strategy) -> bool:
    """Whether workers with samples of their own take local steps together."""
    if strategy.partition.chooses or strategy.consistency.pushes.value != "difference":
        return False
    mesh = strategy.partition.mesh(strategy.workers)
    return bool(mesh.shares > mesh.data)


def exchange_for(consistency: Any) -> Any:
    """The first exchange that has what the consistency model needs. Raises SettingError if there is none."""
    for name in EXCHANGE.open().names():
        exchange = EXCHANGE.open().load(name)()
        if not (consistency.needs_server and "versions" in exchange.lacks):
            return exchange
    raise SettingError("consistency: no exchange keeps versions of parameters")


def _travels(strategy: Strategy) -> bool:
    return bool(strategy.workers > 1 or _keeps_versions(strategy))


def _keeps_versions(strategy: Strategy) -> bool:
    return "versions" not in strategy.exchange.lacks
