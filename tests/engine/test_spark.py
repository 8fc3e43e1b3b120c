"""Refusals before Spark is asked, reasons why a stage failed, and a cluster with executors."""

from __future__ import annotations

import contextlib
import re
import socket
import sys
from pathlib import Path

import psutil
import pytest

import volary
from faults._running import VOLARY, Run, last_step, running, session, state
from volary.engine.spark import SparkEngine
from volary.errors import SettingError
from volary.executors.sent import HasVolary
from volary.executors.stage import StageSettings, cause, lacks, scratch
from volary.executors.task import TaskOrder, be_task

RAISED = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure \
reason: Stage failed because barrier task ResultTask(0, 1) finished unsuccessfully.
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/opt/pyspark.zip/pyspark/worker.py", line 4207, in invoke_udf
    func, profiler, deserializer, serializer = read_udfs(
                                               ^^^^^^^^^^
  File "/opt/pyspark.zip/pyspark/worker.py", line 1920, in read_udfs
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""
LOST = """Job aborted due to stage failure: Could not recover from a failed barrier ResultStage. Most recent failure \
reason: Stage failed because barrier task ResultTask(0, 0) finished unsuccessfully.
ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Command exited with code 137
Driver stacktrace:
"""
SLOTS = "[SPARK-24819]: Barrier execution mode does not allow run a barrier stage that requires more slots than ..."


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (RAISED, "ModuleNotFoundError: No module named 'pyarrow'"),
        (
            RAISED.replace("ModuleNotFoundError: No", "volary.errors.BadInput: column 'x' has 1 nulls; no"),
            "column 'x' has 1 nulls; no module",
        ),
        (
            LOST,
            "executor 1 was lost: Command exited with code 137: it was killed, as the system does",
        ),
        (
            LOST.replace("137", "52"),
            "executor 1 was lost: Command exited with code 52: its Java heap was full; accepted: ",
        ),
        (LOST.replace("137", "1"), "executor 1 was lost: Command exited with code 1"),
        (SLOTS, "the cluster has fewer slots for tasks than strategy.workers; accepted: more executors, or fewer "),
        ("\nMASTER_URL is wrong\n\tat org.apache", "MASTER_URL is wrong"),
        ("", "RuntimeError"),
    ],
)
def test_of_a_failed_stage_the_first_python_cause_is_said_without_java_s_trace(said, why):
    assert cause(RuntimeError(said)).startswith(why)


def test_a_machine_without_spark_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert SparkEngine().check(2) == "Spark is not installed here: pip install 'volary[spark]'"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark is taken to be here, and no program runs whose application would be used."""
    monkeypatch.setattr("volary.engine.spark.find_spec", lambda _: True)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def test_a_machine_without_java_is_told_what_to_install(installed, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "no/such/folder")
    assert "there is none: set JAVA_HOME, or install it" in str(SparkEngine(master="local[2]").check(2))


@pytest.mark.parametrize("master", ["local", "local[]", "local-cluster[2]", "alpha:7077", "http://alpha"])
def test_a_master_that_is_none_is_refused(master):
    with pytest.raises(SettingError, match=r"accepted: spark://host:7077, yarn, "):
        SparkEngine(master=master)


@pytest.mark.parametrize(("master", "slots"), [("local[2]", 2), ("local-cluster[3,2,1024]", 6)])
def test_a_master_whose_name_says_too_few_slots_is_refused(installed, monkeypatch, master, slots):
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    engine = SparkEngine(master=master)
    assert engine.check(slots) is None
    said = f"{slots + 1} workers take {slots + 1} slots for tasks, and the cluster has {slots}"
    assert engine.check(slots + 1) == said


def java_home() -> Path:
    """A folder in which Java is found; nothing runs it."""
    program = Path("java-home", "bin", "java")
    program.parent.mkdir(parents=True)
    program.touch()
    return program.parent.parent


def test_dynamic_allocation_is_refused_by_its_setting():
    assert "spark.dynamicAllocation.enabled is true" in str(lacks({"dynamic": True, "slots": 8}, 2))


def test_a_cluster_without_barriers_is_refused_by_its_version():
    has = {"dynamic": False, "slots": 8}
    said = "the cluster has Spark 3.4.1, whose mapInArrow knows no barrier; accepted: 3.5 or newer"
    assert lacks(has | {"version": "3.4.1"}, 2) == said
    assert lacks(has | {"version": "3.5.0"}, 2) is None


def test_an_executor_with_another_version_or_without_volary_is_named_with_what_it_should_have(monkeypatch):
    required, (ours,) = HasVolary().__reduce__()
    required(ours)
    monkeypatch.setattr(volary, "__version__", "9.9")
    said = rf"executor on \S+: has Volary 9\.9; accepted: the driver's, {re.escape(ours)}"
    with pytest.raises(RuntimeError, match=said):
        required(ours)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RuntimeError, match=rf"executor on \S+: Volary is not installed; accepted: {re.escape(ours)}"):
        required(ours)


def test_a_driver_that_an_executor_does_not_reach_is_named_with_the_address_that_was_tried():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    order = TaskOrder(command=[], python="", folder="", variables={"VOLARY_MEET": address}, log="")
    said = rf"^executor on \S+ does not reach the run's driver at {address}: Connection refused; accepted: "
    with pytest.raises(RuntimeError, match=said):
        next(be_task(order.words(), iter(())))


def test_the_master_is_the_one_of_spark_s_own_configuration_if_the_session_names_none(installed, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(Path.cwd()))
    assert SparkEngine().check(2) is None
    Path("spark-defaults.conf").write_text("# spark.master yarn\nspark.master   local[1]\n")
    assert "the cluster has 1" in str(SparkEngine().check(2))


def test_an_application_of_a_running_program_is_used_by_the_variables_of_spark_submit(monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    assert StageSettings(count=1, master="spark://alpha:7077").attaches
    assert not StageSettings(count=1, master="sc://alpha").attaches


def having(run: Run, word: str) -> psutil.Process:
    """A process that the run has started, by a word of its command."""
    for one in run.started:
        with contextlib.suppress(psutil.NoSuchProcess):  # also of one that has ended since
            if word in " ".join(one.cmdline()):
                return one
    raise AssertionError(f"the run has no process {word}")


CLUSTER = ("engine=spark", "engine.master=local-cluster[2,1,1024]", "strategy.startup_timeout_s=600")


@pytest.mark.slow  # starts a cluster
def test_an_executor_that_is_killed_ends_the_run_with_its_name_leaves_nothing_and_the_run_is_resumed(spark):
    with running(*VOLARY, "train", session(steps=400, pace_s=0.03), *CLUSTER) as run:
        run.wait_for_step(25)
        executor = having(run, "CoarseGrainedExecutorBackend")
        launcher = having(run, "volary.executors")
        executor.kill()
        ended = run.ended(at_most_s=20, gone_within_s=10)
    assert ended.status == 4, run.text()
    assert re.match(r"rank \d \(host .*, process \d+\) .*; last step \d+", ended.err), ended.err
    assert re.search(r"executor \d was lost: ", (run.directory.logs / "spark-workers.log").read_text())
    assert not scratch(launcher.pid).exists()
    with running(*VOLARY, "resume", "it", "engine=local") as again:
        assert again.ended().status == 0, again.text()
    assert (state(run.directory), last_step(run.directory)) == ("finished", 400)
