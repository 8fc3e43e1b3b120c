"""A Prometheus endpoint while a run trains, on loopback: its newest figures. Needs prometheus_client."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from volary.errors import BadInput, SettingError
from volary.loggers._base import About, scalars
from volary.run.database.journal import StepRow
from volary.run.database.reader import PHASES

HOST = "127.0.0.1"  # whoever asks is told everything: nobody beyond this machine may ask


@dataclass(frozen=True, kw_only=True)
class Prometheus:
    """Gauges and counters, each with the run's name as a label, at http://127.0.0.1:PORT/metrics."""

    package: ClassVar[str | None] = "prometheus_client"
    port: int = 9464  # where to listen

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise SettingError(f"port is {self.port}; accepted: 1 to 65535")

    def check(self) -> None:
        try:
            socket.create_server((HOST, self.port)).close()
        except OSError as error:
            raise self._taken(error) from None

    def open(self, about: About) -> PrometheusWriter:
        """Begin to serve. Raises BadInput if the run is over, as nobody could ask, or the port is taken."""
        package = import_module("prometheus_client")
        if not about.live:
            raise BadInput(f"prometheus serves a run while it trains, with --follow; {about.name} is not under way")
        registry = package.CollectorRegistry()
        writer = PrometheusWriter(package, registry, about)
        try:
            writer.server, writer.thread = package.start_http_server(self.port, HOST, registry)
        except OSError as error:
            raise self._taken(error) from None
        return writer

    def _taken(self, error: OSError) -> BadInput:
        return BadInput(
            f"prometheus: port {self.port} cannot be listened on: {error.strerror}; accepted: one that is free"
        )

    def where(self, about: About) -> str:
        return f"http://{HOST}:{self.port}/metrics"


class PrometheusWriter:
    """See `volary.loggers._base.Writer`. server, thread: set by who opens it."""

    def __init__(self, package: Any, registry: Any, about: About) -> None:
        self._about = about
        self.server: Any = None
        self.thread: Any = None

        def gauge(name: str, help_: str, *labels: str) -> Any:
            return package.Gauge(f"volary_{name}", help_, ["run", *labels], registry=registry)

        def counter(name: str, help_: str) -> Any:
            return package.Counter(f"volary_{name}", help_, ["run"], registry=registry)

        self._figures = {
            "training/loss": gauge("training_loss", "Loss of the newest step"),
            "training/lr": gauge("learning_rate", "Learning rate of the newest step"),
            "training/epoch": gauge("epoch", "Passes over the data"),
            "training/samples_per_s": gauge("samples_per_second", "Samples of all workers per second"),
        }
        self._step = gauge("step", "The newest step that all workers have done")
        self._worker = gauge("step_seconds", "Seconds of a worker's newest step, by phase", "rank", "phase")
        self._metric = gauge("metric", "What the newest evaluation measured", "name")
        self._samples = counter("samples", "Samples that all workers have learnt from")
        self._sent = counter("sent_bytes", "Bytes that all workers have sent")

    def steps(self, rows: Sequence[StepRow]) -> None:
        run = self._about.name
        for step, _, figures in scalars(rows, self._about):
            self._step.labels(run).set(step)
            for name, gauge in self._figures.items():
                if name in figures:
                    gauge.labels(run).set(figures[name])
        for row in rows:
            self._samples.labels(run).inc(row.samples)
            self._sent.labels(run).inc(row.sent_bytes)
            for phase in PHASES:
                self._worker.labels(run, str(row.rank), phase).set(getattr(row, f"{phase}_s"))

    def measured(self, step: int, values: Mapping[str, float], at: float) -> None:
        for name, value in values.items():
            self._metric.labels(self._about.name, name).set(value)

    def flush(self) -> None:
        """Do nothing: every request is answered with what was given."""

    def close(self, state: str) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


LOGGER = Prometheus
