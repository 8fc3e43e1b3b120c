"""Volary from Python: train a session, or launch a training loop of your own."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from volary.driver.ending import Ending, NoWatcher
from volary.driver.queued import follow
from volary.driver.start import start
from volary.driver.tasks.submitting import submit_task
from volary.errors import BadInput, SettingError
from volary.jobs.asked import QueueRequest
from volary.monitor.digest import steps_done
from volary.monitor.outline import outline
from volary.run.checkpoints import Checkpoints
from volary.run.control.watcher import Watcher
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.disk import Disk, replace_file
from volary.session.own_source import source_of
from volary.session.script import SOURCE, Script
from volary.session.spec import LoopCheckpoint, RunSettings, Session, Strategy, Train
from volary.session.values.reference import UserObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from volary.train.predicting.predictions import Predictions


_SHOWN = 6  # metrics in a line


@dataclass(frozen=True, repr=False)
class Result:
    """A run. state: how it ended, finished or stopped. steps: updates done. metrics: by name, (step, value) pairs."""

    directory: RunDirectory
    state: str
    steps: int
    metrics: Mapping[str, list[tuple[int, float]]]

    @classmethod
    def of(cls, run: str | Path) -> Result:
        """The run at a path, or of that name in `runs/`: as it is now. Raises RunError if there is none."""
        directory = RunDirectory.existing(run)
        with RunReader(directory) as reader:
            info = reader.info()
            return cls(
                directory, reader.state(), steps_done(info, reader.state(), reader.last_step()), reader.metrics()
            )

    def __repr__(self) -> str:
        """A line: the run's folder, how it ended, and the newest value of its metrics."""
        newest = [f"{name} {pairs[-1][1]:.4g}" for name, pairs in self.metrics.items() if pairs]
        shown = [f"{self.state} after {self.steps} steps", *newest[:_SHOWN], *["..."] * (len(newest) > _SHOWN)]
        return f"<volary.Result {self.directory.argument}: {', '.join(shown)}>"

    def wait(self, *, show: bool = True) -> Result:
        """The run as it is in the end: follows one that is queued or runs. show: progress, as `volary attach` does.

        Raises as `train` for a run that fails.
        """
        return _result(follow(self.directory, _watcher(show)))

    def plot(self, *names: str, beside: Sequence[Result] = ()) -> Figure:
        """A figure of the run's curves, which shows itself in a notebook; needs matplotlib (`volary[plot]`).

        names: metrics, or what is measured of steps (`lr`, `samples_per_s`, ...); default: the loss of training and
        validation, and all other metrics. beside: runs to draw with it. Raises BadInput for what a run does not have.
        """
        from volary.monitor.figure import figure

        return figure([self.directory, *(other.directory for other in beside)], names)

    def predict(self, inputs: str | Path | Tensor, output: str | Path | None = None, **settings: Any) -> Predictions:
        """Predict from inputs without targets: a file or folder, as the run's source reads it, or a tensor (n, ...).

        output: a new file that ends in .csv, .jsonl, .npy or .parquet; None: values are kept in memory. A tensor is
        given to the network as it is. settings: those of `volary.prediction.start.PredictionSettings`, as
        `layer="fc7"`, `top=5`, `workers=2`. Raises BadInput for what cannot be predicted from.
        """
        from volary.prediction.start import PredictionSettings, predict

        if unknown := sorted(settings.keys() - PredictionSettings.__annotations__):
            raise TypeError(f"predict() got an unexpected keyword argument {unknown[0]!r}")
        return predict(self.directory, inputs, None if output is None else Path(output), PredictionSettings(**settings))

    @cached_property
    def module(self) -> nn.Module:
        """The trained network, from the newest checkpoint, in evaluation mode.

        Of a loop of your own it is what was saved as `model`, made by what the run's setting `network` names. Raises
        BadInput if nothing was saved, or nothing is named.
        """
        from volary.train.afterwards import load_network, load_trained

        directory = self.directory
        own_loop, steps = outline(directory.session).own_loop, Checkpoints(directory.checkpoints).steps()
        if not steps:
            raise BadInput(f"result.module: {directory.path} has no checkpoint")
        if not own_loop:
            return load_trained(directory, steps[-1])[0]
        try:
            return load_network(directory, steps[-1])
        except SettingError as error:
            raise BadInput(
                f"result.module: {error}; or make your network, and load into it what `volary export "
                f"{directory.argument}` writes"
            ) from None

    @cached_property
    def values(self) -> list[Any]:
        """The values that a launched function returned, by rank."""
        from volary.train.state.state_file import unpacked

        files = sorted(self.directory.results.glob("rank-*.pt"), key=lambda file: int(file.stem[5:]))
        return [unpacked(file.read_bytes(), file) for file in files]


def train(session: Session, *, show: bool = True) -> Result:
    """Train a session here and now; what `session.train()` does. show: progress, as `volary train` does.

    Raises BadInput before anything starts, and WorkerFailed, WorkerLost, RanksDiffer, NotFinite or Stopped.
    """
    return _result(start(session, _watcher(show)))


Train.start = train


class QueueOptions(TypedDict, total=False):
    """The options that `session.submit` takes by name; see `volary.jobs.asked.QueueRequest`."""

    priority: int
    after: Sequence[str | Path]
    cores: int
    gpus: int
    memory: str
    time: str
    retries: int
    hold: bool


def submit(session: Session, **asked: Unpack[QueueOptions]) -> Result:
    """Queue a run of a session on this machine; what `session.submit()` does. Returns at once: see `Result.wait`.

    Raises BadInput for what cannot be run, with nothing made.
    """
    if unknown := sorted(asked.keys() - QueueOptions.__annotations__):
        raise TypeError(f"submit() got an unexpected keyword argument {unknown[0]!r}")
    return Result.of(submit_task(session, QueueRequest(**asked)).path)


Session.enqueue = submit


class LoopSettings(TypedDict, total=False):
    """Settings of a launched loop's run, as `launch` takes them by name.

    name, folder (`runs`): of the run. seed (1). device (`auto`). engine (`local`): its name, or its settings with it.
    checkpoint: where those of `worker.save` are, and how many of them: `path`, `keep_last`. network: what makes the
    model that is saved as `model`, called without arguments; then `result.module` is that.
    """

    name: str | None
    folder: str
    seed: int
    device: str
    engine: str | Mapping[str, Any]
    checkpoint: Mapping[str, Any] | None
    network: Callable[[], nn.Module] | str


def launch(
    function: Callable[..., Any] | str,
    workers: int | None = None,
    strategy: Mapping[str, Any] | Strategy | None = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    show: bool = True,
    **settings: Unpack[LoopSettings],
) -> Result:
    """Call `function(worker, *args, **kwargs)` in `workers` (1) processes that train as one; see `volary.Worker`.

    function: at the top level of a file or module, or of a notebook; or named as "package.module:name" or
    "path/file.py:name"; or a functools.partial of one. args, kwargs: tensors, numbers, text, and lists, tuples and
    dicts of these; argparse's namespaces. strategy: settings as in a session file. show: progress, as `volary train`
    does. settings: those of `LoopSettings`. Call it under `if __name__ == "__main__":`, since workers import the file
    too; they see the same `sys.argv`. Raises as `train`.
    """
    if unknown := sorted(settings.keys() - LoopSettings.__annotations__):
        raise TypeError(f"launch() got an unexpected keyword argument {unknown[0]!r}")
    if "VOLARY_RUN" in os.environ:
        raise BadInput(
            'volary.launch was reached while a worker imports the file; put it under `if __name__ == "__main__":`'
        )
    given = (
        strategy if isinstance(strategy, Strategy) else Strategy(**({"workers": workers or 1} | dict(strategy or {})))
    )
    if workers is not None and workers != given.workers:
        raise BadInput(f"workers is {workers}, and strategy says {given.workers}; accepted: one of them, or both alike")
    args, named = tuple(args), dict(kwargs or {})
    if isinstance(function, functools.partial):  # one of another is one: functools joins them
        args, named = (*function.args, *args), {**function.keywords, **named}
        function = function.func
    reference, files = _travelling(function)
    if args or named:
        from volary.train.own.startup.arguments import packed_arguments

        _refuse_arguments(function, args, named)
        files["arguments.pt"] = packed_arguments(args, named)
    network = settings.get("network", "")
    script = Script(
        function=reference,
        arguments=[] if SOURCE in files else sys.argv[1:],
        strategy=given,
        seed=settings.get("seed", 1),
        device=settings.get("device", "auto"),  # type: ignore[arg-type]  # judged where it is declared
        engine=settings.get("engine", "local"),
        checkpoint=LoopCheckpoint(**(settings.get("checkpoint") or {})),
        network=network if isinstance(network, str) else reference_to(network),
        run=RunSettings(name=settings.get("name"), folder=settings.get("folder", "runs")),
    )

    def lay_files(directory: RunDirectory) -> None:
        for name, data in files.items():
            replace_file(Disk(), directory.path / name, data)

    return _result(start(script, _watcher(show), lay_files))


def _travelling(function: Callable[..., Any] | str) -> tuple[str, dict[str, bytes]]:
    """Return how workers find `function`, and the files that they need for it. Raises BadInput if they cannot."""
    if isinstance(function, str):
        return UserObject.found_from(function, Path.cwd(), {}).reference, {}
    main = sys.modules.get("__main__")
    if inspect.isfunction(function) and function.__module__ == "__main__" and not hasattr(main, "__file__"):
        if "<" in function.__qualname__:
            raise BadInput(f"{function.__qualname__} has no name; accepted: a function at the top level of a cell")
        return f"{SOURCE}:{function.__name__}", {SOURCE: source_of(function).encode()}
    if inspect.isclass(function):
        raise BadInput(f"{function.__qualname__} is a class; accepted: a function at the top level of a file")
    return reference_to(function), {}


def _refuse_arguments(function: Callable[..., Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise BadInput if the function would not take them."""
    if callable(function):
        try:
            inspect.signature(function).bind(None, *args, **kwargs)
        except TypeError as error:
            raise BadInput(f"{function.__name__}(worker, ...): {error}") from None


def reference_to(function: Callable[..., Any]) -> str:
    """Return how a worker can import `function`, or a class. Raises BadInput if it cannot."""
    name = getattr(function, "__qualname__", "")
    if not (inspect.isfunction(function) or inspect.isclass(function)) or "<" in name:
        raise BadInput(
            f"{name or function!r} cannot be imported by workers; accepted: a function at the top level of a file"
        )
    module = function.__module__
    # of a package, the folder that the package lies in: workers find it wherever they are started
    file = getattr(sys.modules[module.partition(".")[0]], "__file__", None)
    own = getattr(sys.modules[module], "__file__", None)
    if own is None:
        raise BadInput(f"{name} was defined at a prompt, where workers cannot import it; put it into a file")
    if module == "__main__" or file is None:  # or of a folder that is no package
        return f"{Path(own).resolve()}:{name}"
    top = Path(file).resolve()
    return f"{module}:{name} in {top.parent.parent if top.name == '__init__.py' else top.parent}"


def _watcher(show: bool) -> Watcher:
    if not show:
        return NoWatcher()
    from volary.monitor.terminal.console import Console

    return Console()


def _result(ending: Ending) -> Result:
    with RunReader(ending.directory) as reader:
        return Result(ending.directory, ending.state, ending.step, reader.metrics())
