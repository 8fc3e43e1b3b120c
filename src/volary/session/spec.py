"""The session: everything that can be set, with its default. Each field is a YAML key and a row of docs/session.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.session.checks import POSITIVE, WHOLE, require
from volary.session.data_section import Data
from volary.session.fitting.abilities import fit
from volary.session.fitting.needs import exchange_for
from volary.session.fitting.together import of_session, of_strategy
from volary.session.reading.choice import Choice
from volary.session.reading.settle import settle
from volary.session.train_section import MOST_STEPS as MOST_STEPS
from volary.session.train_section import Train as Train
from volary.session.values.period import EVERY_EPOCH, NEVER, Period
from volary.session.values.reference import UserObject
from volary.session.values.run_name import check_name
from volary.session.values.size import Size
from volary.session.values.url import Location, Url
from volary.session.values.worker_range import WorkerRange, begun_with_most

LONGEST_WAIT_S = 86_400.0  # the data path itself waits for two days (comm/groups/group.py)
_READ_ONLY = ("http", "https", "data", "zip", "tar")
_PASSWORDS = "the store's own configuration has them, such as AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, kw_only=True)
class GeneratedText:
    """A text that a network of symbols continues while it trains, for people to read."""

    prompt: str = ""  # what it continues; empty: no text is generated
    every: Period | None = None  # how often, and at the end of the run, unless never; null: with each evaluation
    length: int = 200  # symbols that it adds
    temperature: float = 0.8  # divides scores before one of the symbols is drawn; 0: the most probable one, always

    def __post_init__(self) -> None:
        settle(self)
        require(self.length >= 1, "length", self.length, WHOLE)
        require(self.temperature >= 0, "temperature", self.temperature, "0 or more")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """How often the network is measured on validation data."""

    every: Period = EVERY_EPOCH  # and at the end of the run, unless never
    patience: int | None = None  # stop early after this many evaluations in a row without a better metric
    text: GeneratedText = field(default_factory=GeneratedText)  # what a network of symbols writes meanwhile

    def __post_init__(self) -> None:
        settle(self)
        require(self.patience is None or self.patience >= 1, "patience", self.patience, WHOLE)
        if self.patience is not None and self.every.unit == "never":
            raise SettingError("patience counts evaluations, and every is 'never'; accepted: a period, or no patience")
        if self.text.prompt and self.text_period.unit == "never":
            where, instead = ("text.", "") if self.text.every else ("", ", or text.every")
            raise SettingError(
                f"text.prompt is given, and {where}every is 'never'; accepted: a period{instead}, or no text.prompt"
            )
        if self.text.every is not None and not self.text.prompt:
            raise SettingError("text.every is given, and text.prompt is not; accepted: both, or neither")

    @property
    def text_period(self) -> Period:
        """How often a text is written, which may be never."""
        if not self.text.prompt:
            return NEVER
        return self.every if self.text.every is None else self.text.every


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """How often the whole training state is saved, and which checkpoints are kept."""

    every: Period = EVERY_EPOCH  # and at the end of the run, always
    keep_last: int = 3  # newest checkpoints to keep
    keep_best: bool = True  # also keep the one with the best metric
    path: Location | None = None  # a folder where each run gets one of its own for them; null: the run's directory

    def __post_init__(self) -> None:
        settle(self)
        require(self.keep_last >= 1, "keep_last", self.keep_last, WHOLE)
        object.__setattr__(self, "path", _to_write(self.path))


@dataclass(frozen=True, kw_only=True)
class LoopCheckpoint:
    """Says which checkpoints of a training loop of one's own are kept; the loop itself says when it saves."""

    keep_best: ClassVar[bool] = False  # nobody says which one is the best
    keep_last: int = 3  # newest checkpoints to keep
    path: Location | None = None  # as for a session

    def __post_init__(self) -> None:
        settle(self)
        require(self.keep_last >= 1, "keep_last", self.keep_last, WHOLE)
        object.__setattr__(self, "path", _to_write(self.path))


def _to_write(url: Location | None) -> Location | None:
    """A folder of this machine, or one of a store that takes files. Raises SettingError."""
    if not isinstance(url, Url):
        return url
    scheme, _, rest = str(url).partition("://")
    if scheme in ("file", "local"):
        return Path(rest)
    accepted = "a folder, or a URL that can be written to (s3://bucket/folder)"
    require(scheme not in _READ_ONLY, "path", url, f"{accepted}; {scheme} is for reading")
    require(scheme != "memory", "path", url, f"{accepted}; memory is each process's own")
    require("@" not in rest.partition("/")[0], "path", "a URL with a password", f"{accepted}; {_PASSWORDS}")
    return url


class _Default(str):
    """A default, told apart from the same word in a session."""

    __slots__ = ()


ALL_REDUCE = _Default("allreduce")


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """How many workers, and how replicas stay one model."""

    workers: int = 1  # training processes; 2..8: between 2 and 8 as they join and leave, at first as many as have room
    between: WorkerRange | None = None  # how few and how many workers there may be, if `workers` says so
    consistency: Annotated[Any, Choice("volary.consistency")] = "bsp"  # when workers wait for each other
    exchange: Annotated[Any, Choice("volary.exchange")] = ALL_REDUCE  # who keeps the parameters
    codec: Annotated[Any, Choice("volary.codec")] = "none"  # in how many bytes gradients travel
    partition: Annotated[Any, Choice("volary.partition")] = "data"  # which part of the network each worker holds
    balance: Literal["equal", "auto"] = "equal"  # of a batch each worker has as much, or as much as it is fast
    memory: Size | None = None  # that a worker may take, as `volary check` predicts it; null: not limited
    backend: Literal["auto", "gloo", "nccl", "mpi"] = "auto"  # auto: gloo on CPU, NCCL on CUDA; mpi: if torch has it
    security: Literal["encrypted", "always", "authenticated"] = "encrypted"  # see docs/security.md
    bucket_mb: float = 8.0  # MiB that travel at once: small parameters together, large ones in blocks of rows
    suspect_after_s: float = 5.0  # seconds of silence after which a worker is reported as suspect
    give_up_after_s: float = 10.0  # seconds of silence after which a worker or a server counts as lost, or their driver
    stuck_after_s: float = 600.0  # seconds that others wait for a worker without progress before it counts as lost
    recover: Literal["checkpoint", "memory"] = "checkpoint"  # where training resumes once a worker is lost
    spares: int = 0  # workers more that are ready to take the place of a lost one
    wait_for_driver_s: float = 0.0  # seconds that workers train on without their driver, until another takes its place
    standby: bool = False  # whether a second driver waits beside the first, and takes its place once that is lost
    startup_timeout_s: float = 120.0  # seconds that workers may take to start and meet
    interface: str = ""  # network interface that all machines have, as eth0; empty: the route between them decides

    spread = staticmethod(begun_with_most)

    def __post_init__(self) -> None:
        unsaid = isinstance(self.exchange, _Default)
        settle(self)
        require(self.workers >= 1, "workers", self.workers, WHOLE)
        if self.between is not None:
            fewest, most = self.between.fewest, self.between.most
            require(1 <= fewest <= most, "workers", self.between, "the fewest before the most, from 1 on, as 2..8")
            require(
                fewest <= self.workers <= most, "workers", self.workers, f"{self.between}, as strategy.between says"
            )
        require(self.spares >= 0, "spares", self.spares, "a whole number, 0 or more")
        a_day = f"from 0 to {LONGEST_WAIT_S:g} (a day)"
        require(0 <= self.wait_for_driver_s <= LONGEST_WAIT_S, "wait_for_driver_s", self.wait_for_driver_s, a_day)
        require(self.bucket_mb > 0, "bucket_mb", self.bucket_mb, POSITIVE)
        require(self.suspect_after_s > 0, "suspect_after_s", self.suspect_after_s, POSITIVE)
        require(self.memory is None or self.memory.count > 0, "memory", self.memory, "above 0, or null")
        in_a_day = f"above 0, up to {LONGEST_WAIT_S:g} (a day)"
        require(0 < self.stuck_after_s <= LONGEST_WAIT_S, "stuck_after_s", self.stuck_after_s, in_a_day)
        require(self.startup_timeout_s > 0, "startup_timeout_s", self.startup_timeout_s, POSITIVE)
        longer = f"at least suspect_after_s, {self.suspect_after_s:g}"
        require(self.give_up_after_s >= self.suspect_after_s, "give_up_after_s", self.give_up_after_s, longer)
        if unsaid and self.consistency.needs_server:
            object.__setattr__(self, "exchange", exchange_for(self.consistency))
            object.__setattr__(self, "_unasked", True)
        try:
            self.partition.mesh(self.workers)
        except SettingError as error:
            raise SettingError(f"partition.{error}") from None
        fit(self, of_strategy(self))
        if self.servers:
            self._check_counts()

    @property
    def servers(self) -> int:
        """Processes that keep the parameters beside the workers; 0: each worker keeps all of them itself."""
        return int(self.exchange.count(self.workers))

    @property
    def processes(self) -> int:
        """Workers, spare ones and servers that the run begins with."""
        return self.workers + self.spares + self.servers

    @property
    def shares(self) -> int:
        """In how many shares workers have a batch; those that hold parts of one replica have the same."""
        return int(self.partition.mesh(self.workers).shares)

    @property
    def ranks_each(self) -> int:
        """How many workers hold one replica together, and learn from the same samples."""
        return self.workers // self.shares

    @property
    def posts_shares(self) -> bool:
        """Whether another worker has a copy of what each keeps alone, so that training goes on without it."""
        return self.recover == "memory" and "shares" in self.partition.needs

    @property
    def replicas_equal(self) -> bool:
        """Whether all workers have the same parameters after each step, and have all of them."""
        whole = "all parameters" not in self.partition.lacks
        return bool(whole and self.exchange.equal and self.codec.equal and self.consistency.equal)

    @property
    def remarks(self) -> list[str]:
        """Say in sentences what the session chooses without having been asked for it."""
        from volary.session.resolved import flow, plain_settings

        if not vars(self).get("_unasked"):
            return []
        exchange = plain_settings(self)["exchange"]
        needs = ".".join(filter(None, ("strategy.consistency", self.consistency.deciding)))
        return [f"{needs} needs versions of the parameters: strategy.exchange is {flow(exchange)}"]

    def _check_counts(self) -> None:
        """Whether there are enough servers and workers."""
        servers, replicas = self.servers, self.exchange.replicas
        accepted = f"up to {servers}, as there are so many servers"
        require(replicas <= servers, "exchange.replicas", replicas, accepted)
        try:
            self.consistency.closer(self.shares)
        except SettingError as error:
            raise SettingError(f"consistency.{error}") from None


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The run's name, and the folder that its directory is in."""

    name: str | None = None  # its folder's name (default: network-source-n with the first free n)
    folder: str = "runs"  # where runs are stored, relative to the working directory

    def __post_init__(self) -> None:
        settle(self)
        if self.name is not None:
            check_name("name", self.name)
        require(bool(self.folder), "folder", "''", "a folder's path")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One training session, complete. Sections and choices may be given as mappings and names; they become objects.

    Raises SessionError with all problems at once.
    """

    enqueue: ClassVar[Callable[..., Any] | None] = None  # `volary.api.submit`, which is set by that room

    network: Annotated[Any, Choice("volary.network.zoo", user=True, beside=("weights",))]  # the model
    data: Data
    loss: Annotated[Any, Choice("volary.network.losses", user=True)] = "cross_entropy"  # the loss to minimise
    optimizer: Annotated[Any, Choice("volary.train.optimizers", user=True)] = "sgd"  # the update rule
    schedule: Annotated[Any, Choice("volary.train.schedules")] = "constant"  # the learning rate's factor by step
    train: Train = field(default_factory=Train)
    evaluate: Evaluate = field(default_factory=Evaluate)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    strategy: Strategy = field(default_factory=Strategy)
    engine: Annotated[Any, Choice("volary.engine")] = "local"  # who starts the workers
    run: RunSettings = field(default_factory=RunSettings)

    if TYPE_CHECKING:  # what a user may write, which the fields' own types are not

        def __init__(
            self,
            *,
            network: Any,
            data: Data | Mapping[str, Any],
            loss: Any = ...,
            optimizer: Any = ...,
            schedule: Any = ...,
            train: Train | Mapping[str, Any] = ...,
            evaluate: Evaluate | Mapping[str, Any] = ...,
            checkpoint: Checkpoint | Mapping[str, Any] = ...,
            strategy: Strategy | Mapping[str, Any] = ...,
            engine: Any = ...,
            run: RunSettings | Mapping[str, Any] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        settle(self)
        fit(self.strategy, of_session(self))
        parts = self.strategy.partition.parts(self.strategy.workers)
        fewest = parts * self.train.accumulate
        cut = "strategy.workers" if parts == self.strategy.shares else "strategy.partition.micro_batches"
        accepted = (
            f"{fewest} or more, a sample for each part, or {cut} times train.accumulate of at most "
            f"{self.data.batch_size}"
        )
        require(self.data.batch_size >= fewest, "data.batch_size", self.data.batch_size, accepted)
        mine = replace(self.train)  # a copy, so that two sessions may share a section
        object.__setattr__(mine, "_session", self)
        object.__setattr__(self, "train", mine)

    def submit(self, **asked: Any) -> Any:
        """Queue a run of the session; what `volary.api.submit(session, **asked)` returns, and raises."""
        if Session.enqueue is None:
            raise SettingError("session.submit() needs `from volary import Session`")
        return Session.enqueue(self, **asked)

    @property
    def weights(self) -> Any:
        """The file that the network's first values are read from (`StartingWeights`); None: they are drawn."""
        own = self.network.apart if isinstance(self.network, UserObject) else vars(self.network)
        return own.get("weights")

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> Session:
        """The session in a YAML file, with `a.b.c=value` overrides on top. Raises SessionError with all problems."""
        from volary.session.reading.read import read

        return read(cls, Path(path), overrides)

    def to_yaml(self) -> str:
        """The resolved session: every setting with its value; reading it gives an equal session."""
        from volary.session.resolved import to_yaml

        return to_yaml(self)

    def settings(self) -> dict[str, Any]:
        """Every setting under its dotted name as a plain value: what two sessions are compared by."""
        from volary.session.resolved import flat

        return flat(self)

    def digest(self) -> str:
        """A hash of all settings (64 hexadecimal digits), equal on every machine for equal sessions."""
        from volary.session.resolved import digest

        return digest(self)

    def check(self) -> None:
        """Look for what the session names, without torch: the user's code and the data's files.

        Raises SessionError with everything that is missing or not what it should be.
        """
        from volary.session.presence import check

        check(self)
