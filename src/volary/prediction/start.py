"""Predicts with a run, in this process or with workers that an engine starts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.driver.ending import NoWatcher
from volary.driver.start import start
from volary.errors import BadInput, SettingError
from volary.monitor.outline import outline
from volary.run.checkpoint_files.choice import choose
from volary.run.disk import Disk, refuse_unwritable, replace_file
from volary.session.script import Script
from volary.session.spec import RunSettings, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from volary.run.directory import RunDirectory
    from volary.train.predicting.predictions import Predictions
    from volary.train.predicting.request import Request

_SHARE = "volary.train.predicting.predict:predict_share"
_WORKERS = "workers"  # the run of workers, in a folder of its own
ACCEPTED = "a new file that ends in .csv, .jsonl, .npy or .parquet"


@dataclass(frozen=True, kw_only=True)
class PredictionSettings:
    """How to predict. checkpoint: `best`, `last` or a step; None: the best one. layer: whose output is wanted.

    top: so many of the most probable classes; 0: all. workers (1), engine: processes that share the rows. batch_size:
    of samples; 0: found by measuring. device: as `train.device`. settings: as `data.source.size=64`, in place of the
    run's.
    """

    checkpoint: str | int | None = None
    layer: str = ""
    top: int = 0
    workers: int = 1
    engine: str | Mapping[str, Any] = "local"
    batch_size: int = 0
    device: str = "auto"
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, least in (("top", 0), ("workers", 1), ("batch_size", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise SettingError(f"{name} is {value!r}; accepted: a whole number, {least} or more")
        if self.top and self.layer:
            raise SettingError(f"top is {self.top}, and a layer's output has no classes; accepted: one of them")
        if self.device not in ("auto", "cpu", "cuda"):
            raise SettingError(f"device is {self.device!r}; accepted: auto, cpu, cuda")


def request_of(
    directory: RunDirectory, settings: PredictionSettings, inputs: Path, say: Callable[[str], None]
) -> Request:
    """The request to the run's newest network, or to another one. Raises RunError without a whole checkpoint."""
    from volary.train.predicting.request import Request

    which = None if settings.checkpoint is None else str(settings.checkpoint)
    return Request(
        run=str(directory.path),
        step=choose(directory, which, say).step,
        inputs=str(inputs.absolute()),
        layer=settings.layer,
        overrides=tuple(settings.settings),
        batch_size=settings.batch_size,
        device=settings.device,
        own_loop=bool(outline(directory.session).own_loop),
    )


def predict(
    directory: RunDirectory,
    inputs: str | Path | Tensor,
    output: Path | None,
    settings: PredictionSettings,
    say: Callable[[str], None] = lambda _: None,
) -> Predictions:
    """Predict from a file, a folder or a tensor (n, ...).

    output: a new file; None: values are kept in memory. say: called for each checkpoint that is not whole. Raises
    BadInput for what does not fit.
    """
    if output is not None:
        refuse_output(output)
    if not isinstance(inputs, str | Path):
        return _of_tensor(directory, inputs, output, settings, say)
    request = request_of(directory, settings, Path(inputs), say)
    if settings.workers == 1 and settings.engine == "local":
        from volary.train.predicting.predict import predict_here

        return predict_here(request, output, settings.top)
    folder = Path(tempfile.gettempdir()) if output is None else output.absolute().parent
    parts = Path(tempfile.mkdtemp(prefix=".volary-predict-", dir=folder))
    try:
        found = _by_workers(request, settings, parts, output)
    except BaseException:
        with suppress(OSError):
            parts.rmdir()  # unless a worker that failed has its log there
        raise
    shutil.rmtree(parts)
    return found


def refuse_output(output: Path) -> None:
    """Raise BadInput if the file is there, cannot be made, or is of a kind that there is not."""
    from volary.train.predicting.formats import ROOM

    if output.suffix[1:] not in ROOM.names():
        raise BadInput(f"--output is {output}; accepted: {ACCEPTED}")
    if output.exists():
        raise BadInput(f"{output} exists already; choose another with --output")
    refuse_unwritable("--output", output.parent)


def _of_tensor(
    directory: RunDirectory,
    inputs: Tensor,
    output: Path | None,
    settings: PredictionSettings,
    say: Callable[[str], None],
) -> Predictions:
    import torch

    from volary.train.predicting.predict import predict_here

    tensor = torch.as_tensor(inputs)
    if settings.workers > 1 or not tensor.dim() or not len(tensor):
        accepted = "workers=1, or a file" if settings.workers > 1 else "one row or more"
        raise BadInput(f"predict: inputs is a tensor of the shape {tuple(tensor.shape)}; accepted: {accepted}")
    return predict_here(request_of(directory, settings, Path(), say), output, settings.top, tensor)


def _by_workers(request: Request, settings: PredictionSettings, parts: Path, output: Path | None) -> Predictions:
    """Let each of the workers predict a share of the rows into a file in `parts`, and put the shares together."""
    from volary.train.own.startup.arguments import packed_arguments
    from volary.train.predicting.predict import as_arguments, merged
    from volary.train.state.state_file import unpacked

    arguments = packed_arguments((), {"request": as_arguments(request), "folder": str(parts)})
    script = Script(
        function=_SHARE,
        strategy=Strategy(workers=settings.workers),
        device=settings.device,  # type: ignore[arg-type]  # judged where it is declared
        engine=settings.engine,
        run=RunSettings(name=_WORKERS, folder=str(parts)),
    )

    def lay(run: RunDirectory) -> None:
        replace_file(Disk(), run.path / "arguments.pt", arguments)

    ended = start(script, NoWatcher(), lay)
    files = [ended.directory.results / f"rank-{rank}.pt" for rank in range(settings.workers)]
    reports = [unpacked(file.read_bytes(), file) for file in files]
    return merged(request, reports, parts, output, settings.top)
