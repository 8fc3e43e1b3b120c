import os
import time

import pytest

from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.database.usage import Usage
from volary.run.directory import RunDirectory
from volary.run.machine.usage import MACHINE, PROCESS, UsageMeter


@pytest.fixture
def directory(tmp_path):
    return RunDirectory.create(tmp_path / "runs", "mine", "stem", "network: lenet\n")


def written(directory, found):
    journal = Journal(directory.database)
    journal.start_attempt(0)
    journal.usage(found)
    journal.close()


def test_a_process_and_its_machine_are_measured():
    meter = UsageMeter(whole_machine=True)
    began_s = time.process_time()
    while time.process_time() < began_s + 0.3:  # systems count in ticks of a hundredth
        sum(range(10_000))
    found = meter.look()
    assert set(PROCESS) <= set(found)
    assert {"machine_cores", "machine_memory_bytes", "machine_memory_total_bytes"} <= set(found) & set(MACHINE)
    assert found["cpu"] > 0
    assert 2**20 < found["memory_bytes"] < found["machine_memory_total_bytes"]
    assert found["machine_cores"] == os.cpu_count()
    assert all(value >= 0 for value in found.values())


def test_one_that_is_not_asked_for_its_machine_measures_itself_alone():
    assert set(UsageMeter(whole_machine=False).look()) == set(PROCESS)


def test_a_view_has_means_in_columns_and_none_where_nothing_was_measured(directory):
    written(directory, [Usage(100.0 + at, rank, "cpu", at + rank) for at in (0, 2, 4, 6, 18) for rank in (0, 1)])
    with RunReader(directory) as reader:
        view = reader.usage(3)
        whole = reader.usage(100)
    assert (view.start, view.width_s, view.columns) == (100.0, 6.0, 3)
    assert view.values == {"cpu": {0: [2.0, 6.0, 18.0], 1: [3.0, 7.0, 19.0]}}
    assert whole.values["cpu"][0] == [1.0, 5.0, None, None, 18.0]


def test_nothing_is_seen_of_a_run_that_measured_nothing(directory):
    written(directory, [])
    with RunReader(directory) as reader:
        assert reader.usage(10) is None
