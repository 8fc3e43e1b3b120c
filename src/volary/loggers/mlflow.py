"""MLflow: a tracking server, or a local store. Needs the package mlflow-skinny, or mlflow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from volary.errors import BadInput, SettingError
from volary.loggers._base import About, named, scalars
from volary.run.database.journal import StepRow
from volary.run.disk import refuse_unwritable

_MOST_METRICS = 1000  # of a request
_MOST_PARAMETERS = 100
_ACCEPTED = "accepted: a tracking server, as http://host:5000, or a store, as sqlite:///mlflow.db"
# until the server has answered once: by itself MLflow's client tries for four minutes, or sixteen if nothing answers
_FIRST_CALL = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
_STATES = {"finished": "FINISHED", "stopped": "KILLED"}


@dataclass(frozen=True, kw_only=True)
class MLflow:
    """A run of MLflow under this run's name, with its settings as parameters."""

    package: ClassVar[str | None] = "mlflow"
    uri: str = ""  # the tracking server, as http://host:5000, or a store, as sqlite:///mlflow.db; required
    experiment: str = "volary"  # the experiment; made if it is not there

    def __post_init__(self) -> None:
        if not self.uri.partition("://")[2]:
            raise SettingError(f"uri is {repr(self.uri) if self.uri else 'missing'}; {_ACCEPTED}")

    def check(self) -> None:
        """Check the folder of a store in a file; a server is asked once the run is there."""
        scheme, _, path = self.uri.partition(":///")
        if path and scheme in ("sqlite", "file"):
            refuse_unwritable("mlflow: uri", Path(path).parent)

    def open(self, about: About) -> MLflowWriter:
        """A new run of MLflow, in place of the one that this run was copied to before. Raises BadInput if MLflow cannot
        open it there.
        """
        mlflow, entities = import_module("mlflow"), import_module("mlflow.entities")
        try:
            with _defaults(_FIRST_CALL):
                client = mlflow.MlflowClient(tracking_uri=self.uri)
                found = client.get_experiment_by_name(self.experiment)
            experiment = found.experiment_id if found else client.create_experiment(self.experiment)
        except mlflow.MlflowException as error:
            raise BadInput(
                f"mlflow: {self.uri}: {str(error).strip().splitlines()[0].rstrip('.')}; {_ACCEPTED}"
            ) from None
        source = str(about.path)
        for old in client.search_runs([experiment], f"tags.`volary.path` = '{source.replace(chr(39), '')}'"):
            client.delete_run(old.info.run_id)
        run = client.create_run(
            experiment,
            start_time=round(about.started_at * 1000),
            tags={"volary.path": source.replace("'", "")},
            run_name=about.name,
        ).info.run_id
        settings = [entities.Param(name, value) for name, value in about.settings.items()]
        for start in range(0, len(settings), _MOST_PARAMETERS):
            client.log_batch(run, params=settings[start : start + _MOST_PARAMETERS])
        return MLflowWriter(client, run, entities.Metric, about)

    def where(self, about: About) -> str:
        return f"{self.uri}, experiment {self.experiment}"


@contextmanager
def _defaults(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables meanwhile, but for those that the user has set."""
    ours = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


class MLflowWriter:
    """A `Writer` of a run of MLflow. metric: MLflow's class of that name."""

    def __init__(self, client: Any, run: str, metric: Any, about: About) -> None:
        self._client, self._run, self._metric, self._about = client, run, metric, about
        self._waiting: list[Any] = []

    def steps(self, rows: Sequence[StepRow]) -> None:
        """A value of each figure for each step."""
        for step, at, figures in scalars(rows, self._about):
            self._add(step, at, figures)

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._add(step, at, named(values, self._about))

    def flush(self) -> None:
        """Send what waits, in requests that the server accepts."""
        while self._waiting:
            self._client.log_batch(self._run, metrics=self._waiting[:_MOST_METRICS])
            del self._waiting[:_MOST_METRICS]

    def close(self, state: str) -> None:
        """The run is over: well, or not."""
        self.flush()
        self._client.set_terminated(self._run, _STATES.get(state, "FAILED"))

    def _add(self, step: int, at: float, figures: Mapping[str, float]) -> None:
        self._waiting += [self._metric(name, value, round(at * 1000), step) for name, value in figures.items()]


LOGGER = MLflow
