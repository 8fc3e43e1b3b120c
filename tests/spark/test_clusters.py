"""The examples in clusters of Spark's: by spark-submit on a standalone master with two workers; over Connect."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from faults._running import BUSY
from spark.conftest import SOURCE

EXAMPLES = SOURCE.parent / "examples" / "spark"
MASTER, WORKER = ("org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker")
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
LEAST = 0.8  # of the digits, which a softmax recognises after four epochs
QUIET_S = 120  # that an example takes on a quiet machine, at most


@pytest.fixture
def variables(spark: None) -> dict[str, str]:
    """Variables of all processes of a cluster."""
    paths = [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"SPARK_HOME": str(home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    own |= {"SPARK_WORKER_DIR": str(Path("work").absolute()), "SPARK_LOCAL_DIRS": str(Path("local").absolute())}
    return os.environ | own | {"PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable}


def home() -> Path:
    """The folder of PySpark, in which its programs are."""
    import pyspark

    return Path(pyspark.__file__).parent


@contextmanager
def daemon(name: str, command: Sequence[str], variables: dict[str, str]) -> Iterator[Path]:
    """A JVM that runs meanwhile, and its log; it and all below it are gone afterwards."""
    log = Path(f"{name}.log")
    with log.open("w") as output:
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield log
    finally:
        known = psutil.Process(process.pid)
        all_of_it = [known, *known.children(recursive=True)]
        for one in all_of_it:
            one.terminate()
        _, alive = psutil.wait_procs(all_of_it, 10 * BUSY)
        for one in alive:
            one.kill()
        process.wait(10 * BUSY)


def found(log: Path, pattern: str, at_most_s: float = 60) -> str:
    """Wait for what a log says; its first group."""
    until = time.monotonic() + BUSY * at_most_s
    while (said := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)  # a look at a file
    return said[1]


def recognised(command: Sequence[str], variables: dict[str, str]) -> float:
    """The share of the digits that an example says it recognises."""
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=BUSY * QUIET_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    right, all_of_them = re.search(r"(\d+) of (\d+) digits are recognised", ended.stdout).groups()
    return int(right) / int(all_of_them)


@pytest.mark.slow  # starts a cluster, and a run in it
@pytest.mark.timeout(2 * BUSY * QUIET_S)
def test_a_program_of_spark_submit_trains_and_scores_on_a_standalone_master_with_two_workers(variables):
    start = [str(home() / "bin" / "spark-class")]
    with ExitStack() as up:
        master = [*start, MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = up.enter_context(daemon("master", master, variables))
        address = found(log, r"(spark://127\.0\.0\.1:\d+)")
        for number in range(2):
            worker = [*start, WORKER, "--host", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", "0", address]
            found(up.enter_context(daemon(f"worker-{number}", worker, variables)), "(Successfully registered)")
        submit = [str(home() / "bin" / "spark-submit"), "--master", address, "--conf", "spark.ui.enabled=false"]
        submit += ["--conf", f"spark.executorEnv.PYTHONPATH={variables['PYTHONPATH']}", str(EXAMPLES / "submit.py")]
        assert recognised(submit, variables) > LEAST


@pytest.mark.slow  # starts a Connect server, and a run in it
@pytest.mark.timeout(2 * BUSY * QUIET_S)
def test_a_notebook_trains_and_scores_over_connect(variables):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    server = [str(home() / "bin" / "spark-submit"), "--master", "local[3]", "--class", CONNECT]
    for setting in (f"connect.grpc.binding.port={port}", "connect.grpc.binding.address=127.0.0.1", "ui.enabled=false"):
        server += ["--conf", f"spark.{setting}"]
    with daemon("connect", [*server, "spark-internal"], variables) as log:
        found(log, "(Spark Connect server started)")
        notebook = [sys.executable, str(EXAMPLES / "notebook.py")]
        assert recognised(notebook, variables | {"SPARK_REMOTE": f"sc://127.0.0.1:{port}"}) > LEAST


@pytest.mark.slow  # starts Spark
@pytest.mark.timeout(2 * BUSY * QUIET_S)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("rotation.py", "the same factors as in one process, of 4 parts"),
        ("store.py", "weights 1.00, 2.00, 3.00, 4.00, 5.00; the same ones in 2 tasks"),
    ],
)
def test_a_model_that_is_rotated_or_in_a_store_is_in_a_stage_of_one_s_own_that_of_one_process(program, said, variables):
    submit = [str(home() / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", f"spark.executorEnv.PYTHONPATH={variables['PYTHONPATH']}"]
    command = [*submit, str(EXAMPLES / program)]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=BUSY * QUIET_S, check=False)
    assert said in ended.stdout, ended.stdout + ended.stderr
