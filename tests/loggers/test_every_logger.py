"""A run, copied to each logger: afterwards, and while it trains."""

from __future__ import annotations

import csv
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from monitor._made_runs import evaluated, finished, journal, new_run, row, rows, started, whole_run
from volary.comm.groups.listeners import listeners
from volary.errors import BadInput, SettingError, VolaryError
from volary.loggers import ROOM
from volary.loggers._base import About, scalars
from volary.loggers.copying.copy import copy_run
from volary.loggers.copying.read import read
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session.reading.problems import SessionError

STEPS = 46
OWN_PYTHON = Path(__file__).resolve().parents[2] / ".loggers" / "bin" / "python"  # of `make loggers`


def wait_until(condition: Callable[[], bool], at_most_s: float = 60) -> None:
    until = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def table(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.fixture
def diverged() -> RunDirectory:
    """A run whose last loss is not a number."""
    directory = new_run("diverged")
    with journal(directory) as run:
        started(run, 2)
        run.steps([*rows(1, 1), *(row(2, rank, 0.0, 0.0, loss=math.nan) for rank in (0, 1))])
        finished(run, 2, "failed")
    return directory


def test_csv_has_every_step_of_every_worker_and_every_value(diverged):
    whole = whole_run()
    copy_run(whole, read(["csv"]))
    steps, metrics = table(whole.path / "csv" / "steps.csv"), table(whole.path / "csv" / "metrics.csv")
    assert [(int(one["step"]), int(one["rank"])) for one in steps] == [
        (s, r) for s in range(1, STEPS + 1) for r in (0, 1)
    ]
    assert float(steps[3]["loss"]) == 1.0
    assert [(one["step"], one["name"], one["value"]) for one in metrics if one["name"] == "accuracy"] == [
        ("23", "accuracy", "0.9132"),
        ("46", "accuracy", "0.9733"),
    ]
    copy_run(diverged, read(["{name: csv, folder: here}"]))
    assert [one["loss"] for one in table(Path("here/steps.csv"))] == ["2.0", "2.0", "nan", "nan"]


def test_a_copy_is_of_the_whole_run_and_replaces_an_older_one():
    directory = whole_run()
    for _ in range(2):
        copy_run(directory, read(["csv"]))
    assert len(table(directory.path / "csv" / "steps.csv")) == 2 * STEPS


def test_parquet_reads_back_with_types_and_leaves_nothing_half_done(diverged):
    pq = pytest.importorskip("pyarrow.parquet")
    directory = whole_run()
    copy_run(directory, read(["parquet"]))
    steps = pq.read_table(directory.path / "parquet" / "steps.parquet")
    assert steps.num_rows == 2 * STEPS
    assert (str(steps.schema.field("step").type), str(steps.schema.field("loss").type)) == ("int64", "double")
    assert steps.column("loss")[2].as_py() == 1.0
    metrics = pq.read_table(directory.path / "parquet" / "metrics.parquet").to_pylist()
    assert {"step": 46, "name": "accuracy", "value": 0.9733} in [
        {name: one[name] for name in ("step", "name", "value")} for one in metrics
    ]
    assert sorted(file.name for file in (directory.path / "parquet").iterdir()) == ["metrics.parquet", "steps.parquet"]


def test_tensorboard_reads_the_events(diverged):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = whole_run()
    for _ in range(2):  # the second copy replaces the first: otherwise each step were there twice
        copy_run(directory, read(["tensorboard"]))
    found = EventAccumulator(str(directory.path / "tensorboard"))
    found.Reload()
    losses = found.Scalars("training/loss")
    assert [(one.step, round(one.value, 4)) for one in losses[:3]] == [(1, 2.0), (2, 1.0), (3, 0.6667)]
    assert len(losses) == STEPS
    assert losses[0].wall_time == pytest.approx(1000.1)
    assert [(one.step, round(one.value, 4)) for one in found.Scalars("validation/accuracy")] == [
        (23, 0.9132),
        (46, 0.9733),
    ]
    assert found.Scalars("training/samples_per_s")[0].value == pytest.approx(640)


def test_figures_of_a_run_over_servers_are_at_the_steps_of_the_run_as_its_metrics_are():
    half = [row(number, rank, 0.0, 0.0, epoch=number / 46) for number in range(1, 93) for rank in (0, 1)]
    about = About("it", Path("it"), {}, 0.0, steps_per_epoch=23)
    steps = [step for step, _, _ in scalars(half, about)]
    assert (steps[:4], steps[-1]) == ([1, 1, 2, 2], 46), "two contributions of each worker make a step"
    assert [step for step, _, _ in scalars(rows(1, 3), About("it", Path("it"), {}, 0.0))] == [1, 2, 3]


def test_the_copy_of_a_run_over_servers_knows_its_steps():
    directory = new_run("served")
    with journal(directory) as run:
        started(run, 4)
        run.note(steps_now=4, steps_per_epoch=23)
        run.steps(rows(1, 8))
        finished(run, 4)
    assert copy_run(directory, read(["csv"])).steps_per_epoch == 23
    assert copy_run(whole_run(), read(["csv"])).steps_per_epoch is None


def test_a_live_run_is_copied_step_by_step_and_only_steps_that_all_workers_have_done():
    directory = new_run("live")
    with journal(directory) as run:
        started(run, 6)
        lock = directory.lock()
        lock.__enter__()
        copying = threading.Thread(target=copy_run, args=(directory, read(["csv"])), kwargs={"follow": True})
        copying.start()
        try:
            file = directory.path / "csv" / "steps.csv"
            run.steps([*rows(1, 4), row(5, 0, 0.0, 0.0)])
            evaluated(run, 4, 0.5)
            wait_until(lambda: len(table(file)) == 8)
            wait_until(lambda: len(table(directory.path / "csv" / "metrics.csv")) == 2)
            evaluated(run, 3, 0.4)
            wait_until(lambda: len(table(directory.path / "csv" / "metrics.csv")) == 4)  # it has looked once more
            run.steps([row(5, 1, 0.0, 0.0)])
            wait_until(lambda: len(table(file)) == 10)
            run.steps([row(6, 0, 0.0, 0.0)])
        finally:
            lock.__exit__(None, None, None)
            copying.join(60)
    assert [(one["step"], one["rank"]) for one in table(file)][-3:] == [("5", "0"), ("5", "1"), ("6", "0")]
    assert len(table(directory.path / "csv" / "metrics.csv")) == 4, "each value once"


def test_prometheus_serves_the_newest_figures_on_loopback_while_the_run_trains():
    pytest.importorskip("prometheus_client")
    directory, port = new_run("live"), free_port()

    def scraped() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    loggers = read([f"{{name: prometheus, port: {port}}}"])
    with journal(directory) as run:
        started(run, 6)
        run.steps(rows(1, 4))
        evaluated(run, 4, 0.5)
        with directory.lock():
            copying = threading.Thread(target=copy_run, args=(directory, loggers), kwargs={"follow": True})
            copying.start()
            wait_until(lambda: 'volary_step{run="live"} 4.0' in scraped())
            text = scraped()
            assert [end.beyond_loopback for end in listeners([os.getpid()]) if end.port == port] == [False]
            with pytest.raises(BadInput, match=f"port {port} cannot be listened on"):
                copy_run(directory, loggers, follow=True)
        copying.join(60)
    assert 'volary_training_loss{run="live"} 0.5' in text
    assert 'volary_samples_total{run="live"} 256.0' in text
    assert 'volary_step_seconds{phase="forward",rank="1",run="live"} 0.03' in text
    wait_until(lambda: 'volary_metric{name="accuracy",run="live"} 0.5' in text)
    assert scraped() == "", "it listens no longer than the run"
    with pytest.raises(BadInput, match="prometheus serves a run while it trains, with --follow"):
        copy_run(directory, loggers)


def python_with(package: str) -> str:
    """This Python, if it has the package, or that of `make loggers`."""
    if find_spec(package) is not None:
        return sys.executable
    if not OWN_PYTHON.exists():
        pytest.skip(f"{package} is not installed: make loggers")
    return str(OWN_PYTHON)


def said_by(python: str, code: str) -> str:
    """Output of a process of its own: some packages leave threads and services behind until they end."""
    found = f"import sys; sys.path += {sys.path!r}\n{code}"  # its own packages first
    done = subprocess.run([python, "-c", found], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copied(directory: RunDirectory, to: str) -> str:
    """Code that copies a run."""
    return (
        "from volary.loggers.copying.copy import copy_run; from volary.loggers.copying.read import read\n"
        "from volary.run.directory import RunDirectory\n"
        f"copy_run(RunDirectory({str(directory.path)!r}), read([{to!r}]))\n"
    )


@pytest.mark.slow  # its import alone takes seconds
def test_wandb_keeps_an_offline_copy_and_needs_no_network():
    directory = whole_run()
    said_by(python_with("wandb"), copied(directory, "wandb"))
    (file,) = (directory.path / "wandb" / "wandb").glob("offline-run-*/*.wandb")
    content = file.read_bytes()
    for part in (b"training/loss", b"validation/accuracy", b"optimizer.lr", b"lenet-digits-1"):
        assert part in content


@pytest.mark.slow  # starts a server that takes seconds
def test_mlflow_takes_the_run_at_a_local_server():
    python, port = python_with("mlflow"), free_port()
    address = f"http://127.0.0.1:{port}"
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_BACKEND_STORE_URI": "sqlite:///m.db"}
    environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"  # it would leave a folder in shared memory
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as server:
        try:

            def is_up() -> bool:
                assert server.poll() is None
                try:
                    return urllib.request.urlopen(f"{address}/health", timeout=5).status == 200
                except OSError:
                    return False

            wait_until(is_up, 150)
            copies = copied(whole_run(), f"{{name: mlflow, uri: '{address}'}}")
            kept = json.loads(said_by(python, 2 * copies + WHAT_MLFLOW_HAS.format(address=address)).splitlines()[-1])
        finally:
            server.terminate()
            server.communicate(timeout=60)
    assert (kept["status"], kept["name"]) == ("FINISHED", "lenet-digits-1")
    assert kept["params"]["optimizer.lr"] == "0.05"
    assert kept["metrics"]["validation/accuracy"] == 0.9733
    assert kept["losses"][:2] == [[1, 2.0], [2, 1.0]]
    assert len(kept["losses"]) == STEPS


@pytest.mark.slow  # its import alone takes seconds
def test_a_server_of_mlflow_that_is_away_is_named_after_a_few_tries():
    address = f"http://127.0.0.1:{free_port()}"
    copying = copied(whole_run(), f"{{name: mlflow, uri: '{address}'}}")
    said = said_by(
        python_with("mlflow"),
        "import os\nfrom volary.errors import BadInput\ntry:\n    exec(" + repr(copying) + ")\n"
        "except BadInput as error:\n    print(error, [name for name in os.environ if 'MLFLOW_HTTP' in name])\n",
    )
    assert said.startswith(f"mlflow: {address}: ")
    assert "Max retries exceeded" in said
    assert said.rstrip().endswith("[]"), "what is tried later is MLflow's own business"


@pytest.mark.parametrize("users", [None, "5"])
def test_the_first_call_of_mlflow_has_few_tries_unless_the_user_has_set_how_many(monkeypatch, users):
    name, seen = "MLFLOW_HTTP_REQUEST_MAX_RETRIES", []

    class Away(Exception):
        pass

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            pass

        def get_experiment_by_name(self, _: str) -> None:
            seen.append(os.environ[name])
            raise Away("refused")

    stand_in = SimpleNamespace(MlflowClient=Client, MlflowException=Away)
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    monkeypatch.setitem(sys.modules, "mlflow.entities", SimpleNamespace())
    monkeypatch.delenv(name, raising=False)
    if users:
        monkeypatch.setenv(name, users)
    with pytest.raises(BadInput, match=r"^mlflow: http://it: refused; accepted: a tracking server"):
        ROOM.load("mlflow")(uri="http://it").open(About("it", Path("it"), {}, 0.0))
    assert (seen, os.environ.get(name)) == ([users or "2"], users)


WHAT_MLFLOW_HAS = """
import json, mlflow
client = mlflow.MlflowClient("{address}")
(run,) = client.search_runs([client.get_experiment_by_name("volary").experiment_id])
losses = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "training/loss")]
kept = dict(status=run.info.status, name=run.info.run_name, params=run.data.params, metrics=run.data.metrics)
print(json.dumps(kept | dict(losses=losses)))
"""


@pytest.mark.parametrize("name", ROOM.names())
def test_a_logger_whose_package_is_missing_says_how_to_get_it(name, monkeypatch):
    monkeypatch.setattr("volary.loggers.copying.read.find_spec", lambda _: None)
    word = f"{{name: {name}, uri: sqlite:///x}}" if name == "mlflow" else name
    if ROOM.load(name).package is None:
        assert read([word])
        return
    with pytest.raises(BadInput, match=rf"is not installed; accepted: pip install 'volary\[{name}\]' first"):
        read([word])


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("tensorbord", "unknown name 'tensorbord'; did you mean 'tensorboard'"),
        ("{name: csv, foldr: x}", "unknown; did you mean 'folder'"),
        ("mlflow", "uri is missing; accepted: a tracking server, as http://host:5000, or a store, as sqlite:///"),
        ("{name: mlflow, uri: localhost}", "uri: is 'localhost'; accepted: a tracking server, as http://host:5000"),
        ("{name: prometheus, port: 0}", "port: is 0; accepted: 1 to 65535"),
        ("{", "not valid YAML"),
    ],
)
def test_what_is_no_logger_is_refused(word, sentence):
    with pytest.raises((SessionError, SettingError), match=sentence):
        read([word])


NOWHERE = Path("/proc/nowhere")  # not to be written by anybody, root included


@pytest.mark.parametrize("name", ["csv", "parquet", "tensorboard", "wandb", "mlflow"])
def test_a_place_that_cannot_be_written_is_refused_before_a_run_begins(name, monkeypatch):
    monkeypatch.setattr("volary.loggers.copying.read.find_spec", lambda _: True)
    where = f"uri: 'sqlite:///{NOWHERE}/m.db'" if name == "mlflow" else f"folder: {NOWHERE}/x"
    with pytest.raises(BadInput, match=f"^{name}: .*{NOWHERE}.* cannot be written: .*; accepted: "):
        read([f"{{name: {name}, {where}}}"])


def test_a_port_that_is_taken_is_refused_before_a_run_begins(monkeypatch):
    monkeypatch.setattr("volary.loggers.copying.read.find_spec", lambda _: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match=f"^prometheus: port {port} cannot be listened on: .*; accepted: "):
            read([f"{{name: prometheus, port: {port}}}"])


def test_trying_a_folder_leaves_nothing():
    assert read(["{name: csv, folder: a/b}"])
    assert not Path("a").exists()


def test_a_copy_that_fails_is_named_and_the_others_are_made():
    directory, full = whole_run(), Path("full")
    full.mkdir()
    loggers = read(["{name: csv, folder: full}", "csv"])
    (full / "steps.csv").symlink_to("/dev/full")  # a disk without space
    with pytest.raises(VolaryError, match=r"^csv: the copy is not whole: .*No space left on device$"):
        copy_run(directory, loggers)
    assert len(table(directory.path / "csv" / "steps.csv")) == 2 * STEPS


SHORT = """network: softmax
data: {source: digits, batch_size: 64}
train: {steps: 2}
evaluate: {every: never}
run: {name: short}
"""


@pytest.mark.slow  # what a copy that fails says comes above
def test_a_training_whose_copy_fails_says_so_and_how_to_make_it_and_does_not_end_as_if_all_were_well(fresh):
    Path("session.yaml").write_text(SHORT)
    Path("full").mkdir()
    Path("full/steps.csv").symlink_to("/dev/full")
    said = fresh("-m", "volary", "train", "session.yaml", "--quiet", "--log", "{name: csv, folder: full}")
    assert (said.status, "csv: the copy is not whole" in said.err) == (1, True), said.err
    assert said.err.endswith(
        "the copy of the run is not whole; it can be made anew: volary log short --to '{name: csv, folder: full}'\n"
    )
    with RunReader(RunDirectory("runs/short")) as reader:
        assert reader.state() == "finished"


def test_nothing_is_trained_if_its_copy_could_not_be_written(volary):
    Path("session.yaml").write_text(SHORT)
    said = volary("train", "session.yaml", "--log", f"{{name: csv, folder: {NOWHERE}}}")
    assert (said.status, said.err.startswith(f"csv: folder: {NOWHERE} cannot be written")) == (2, True), said.err
    assert not Path("runs").exists()


def test_the_verb_copies_and_says_where_it_is(volary):
    whole_run("a")
    said = volary("log", "a", "--to", "csv", "--to", "{name: csv, folder: here}")
    assert said.status == 0
    assert said.out.splitlines() == [str(Path.cwd() / "runs" / "a" / "csv"), str(Path.cwd() / "here")]
    assert volary("train", "none.yaml", "--log", "nothing").status == 2
    assert len(table(Path("here/steps.csv"))) == 2 * STEPS
