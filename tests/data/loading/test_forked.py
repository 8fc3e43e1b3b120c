"""Forked processes make batches of tiny samples: the same as threads do, each sample once, and no death is a hang."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data._stores import KINDS
from data.loading._digits import Digits
from data.loading._numbered import InStore, Numbered, always, opened, pids, values  # noqa: F401
from volary.data.caching.cached import reads, through_cache
from volary.data.feed import Feed
from volary.data.loading import choice, pipeline
from volary.data.loading.forked import divided, most_slots
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.processes import PIECES
from volary.data.loading.readers import Readers
from volary.data.loading.scale import Scale
from volary.data.loading.slots import Slots
from volary.data.skipping import Skipping
from volary.data.sources.packed import PackedShards
from volary.session.data_section import Cache
from volary.sharding.samples import SampleShare
from volary.train.recording.reads import Reads
from volary.train.recording.recorder import Recorder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads make all batches")


@settings(max_examples=8)
@given(
    st.integers(20, 300),
    st.integers(2, 50),
    st.integers(1, 2),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([0, pipeline.MEMORY_BYTES]),
)
def test_a_feed_gives_the_same_batches_whatever_the_number_of_processes(
    samples, batch, world, count, cached, at, memory_bytes
):
    before = torch.get_num_threads(), pipeline.MEMORY_BYTES
    torch.set_num_threads(count)
    pipeline.MEMORY_BYTES = memory_bytes
    try:
        for rank in range(world):
            data = opened(samples, cache_bytes=cached * 10**6)
            feed = Feed(data, batch, share=SampleShare(rank, world))
            position = min(at * batch, samples - 1) // batch * batch
            feed.restore(feed.state() | {"position": position, "step": position // batch})
            feed.limit(2 * (feed.steps_per_epoch or 0))
            batches = list(feed)
            assert [values(b.inputs) for b in batches] == [b.targets.tolist() for b in batches]
            for epoch in range(2):
                expected = Feed(opened(samples), samples)
                expected.epoch = epoch
                order = next(expected).targets
                mine = [index for b in batches if b.epoch == epoch for index in b.targets.tolist()]
                steps = [order[start : start + batch] for start in range(0 if epoch else position, samples, batch)]
                shares = [step[SampleShare(rank, world).of(len(step), batch)].tolist() for step in steps]
                assert mine == [index for share in shares for index in share]
            assert not cached or bool(data._maker._cached.any())
            assert len(batches) < 3 or cached or len(pids(data)) == count
            del feed, data, batches
    finally:
        torch.set_num_threads(before[0])
        pipeline.MEMORY_BYTES = before[1]


def test_the_memory_of_batches_is_not_aligned_in_a_way_that_has_decoders_write_past_the_caches():
    assert Slots(2, 4, (32, 32, 3), np.uint8, used=2).samples.ctypes.data % 32 == 16


@pytest.mark.parametrize("dead", [1, 2])
def test_when_processes_die_threads_make_the_rest_and_no_sample_is_lost(dead, caplog, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    samples = opened(2000)
    feed = Feed(samples, 20)
    feed.limit(feed.steps_per_epoch or 0)
    seen = [values(next(feed).inputs) for _ in range(10)]
    mine = pids(samples)
    for pid in mine[:dead]:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # else what is left may be made before it dies
    seen += [values(batch.inputs) for batch in feed]
    assert sorted(i for one in seen for i in one) == list(range(2000))
    assert [record.message for record in caplog.records] == [
        "a process that decoded samples has died: threads decode from now on"
    ]
    assert not any(pid in mine and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in psutil.pids())


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_a_corrupt_sample_is_told_as_by_threads_and_the_others_are_there(cache_bytes):
    told: list[tuple[int, str]] = []
    samples = opened(400, frozenset({7, 300}), cache_bytes=cache_bytes)
    feed = Feed(Skipping(samples, lambda index, why: told.append((index, why))), 40)
    feed.limit(2 * (feed.steps_per_epoch or 0))
    seen = [i for batch in feed for i in values(batch.inputs)]
    assert sorted(seen) == sorted(2 * [i for i in range(400) if i not in (7, 300)])
    assert dict(sorted(told)) == {
        index: f"record {index}: not a number that can be decoded (it is empty)" for index in (7, 300)
    }
    assert len(told) == 2
    assert pids(samples)


@pytest.mark.parametrize("memory_bytes", [0, pipeline.MEMORY_BYTES])
def test_batches_that_somebody_keeps_are_not_written_again_however_many(memory_bytes, monkeypatch):
    monkeypatch.setattr(pipeline, "MEMORY_BYTES", memory_bytes)
    feed = Feed(opened(3000), 10)
    kept = [next(feed) for _ in range(300)]
    assert [values(batch.inputs) for batch in kept] == [batch.targets.tolist() for batch in kept]


def test_a_batch_that_grew_beyond_what_processes_have_memory_for_is_made_by_threads():
    feed = Feed(opened(20_000), 10)
    for _ in range(5):
        next(feed)
    feed.size = 1000
    grown = [next(feed) for _ in range(5)]
    assert [len(batch.inputs) for batch in grown] == [1000] * 5
    assert [values(batch.inputs) for batch in grown] == [batch.targets.tolist() for batch in grown]


def test_code_of_ones_own_is_never_called_in_a_process():
    samples = opened(2000, own_code=True)
    feed = Feed(samples, 20)
    for _ in range(5):
        next(feed)
    assert samples._forked is None
    assert samples.decoding is not None
    assert samples.decoding.why == "a transform is code of your own, which is never called in another process"


def decoding(samples: Pipeline) -> tuple[str, int, str]:
    """Who decodes, after batches that decide it; numbers that were measured are left out."""
    recorder, feed = Recorder(0), Feed(samples, 10)
    told = Reads(samples, recorder)
    for _ in range(5):
        next(feed)
        told.tell_decoding()
    (event,) = recorder.events
    return event["data"]["by"], event["data"]["count"], re.sub(r"[\d.e-]+ (us|s) ", r"N \1 ", event["data"]["why"])


def test_who_decodes_is_told_once_with_the_reason(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert decoding(opened(200)) == ("processes", 2, "a sample takes N us of a core")
    why = "samples are read from a store, and no cache has them in memory"
    assert decoding(Pipeline(InStore(200), torch.arange(200), None, Digits(), None)) == ("threads", 2, why)
    differing = opened(200)
    differing.pad = True
    assert decoding(differing) == ("threads", 2, "samples differ in size")
    monkeypatch.setattr(choice, "WORTH_S", 1000.0)
    why = "all samples take N s of a core, and processes are for more than 1000 s"
    assert decoding(opened(200)) == ("threads", 2, why)


def test_what_the_cache_has_is_made_by_processes_and_counted_as_read_from_there():
    samples = Pipeline(InStore(2000), torch.arange(2000), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(through_cache(samples, Cache(memory="1MB"), "of this test"), 20)
    feed.limit(3 * (feed.steps_per_epoch or 0))
    for batch in feed:
        assert values(batch.inputs) == batch.targets.tolist()
    levels = reads(samples)
    assert sum(levels.values()) == 6000
    assert levels["memory"] > 3900  # of two epochs, less what was told of the second before the first was read
    assert len(pids(samples)) == torch.get_num_threads()


def test_for_what_the_cache_has_in_memory_no_reader_is_started(monkeypatch):
    samples = Pipeline(InStore(400), torch.arange(400), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(through_cache(samples, Cache(memory="1MB"), "of a test without readers"), 20)
    feed.limit(2 * (feed.steps_per_epoch or 0))
    for _ in feed:
        pass
    monkeypatch.setattr(Readers, "expect", lambda *_: pytest.fail("all of it is at hand"))
    feed.limit(4 * (feed.steps_per_epoch or 0))
    for batch in feed:
        assert values(batch.inputs) == batch.targets.tolist()
    assert pids(samples)


class Announced(Numbered):
    """Records that the kernel can be asked to read ahead."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.told: list[int] = []

    def announce(self, indices) -> bool:
        self.told += indices
        return True


def test_for_what_the_kernel_can_be_told_of_no_reader_is_started(monkeypatch):
    records = Announced(400)
    samples = Pipeline(records, torch.arange(400), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(samples, 20)
    feed.limit(20)
    samples._readers.begin()
    monkeypatch.setattr(Readers, "expect", lambda *_: pytest.fail("the kernel was told"))
    seen = [index for batch in feed for index in batch.targets.tolist()]
    assert records.told == seen
    assert samples.readers == 0
    assert sorted(seen) == list(range(400))


def test_of_small_batches_more_are_told_ahead_than_there_is_memory_for_at_first(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    records = Announced(4000)
    samples = Pipeline(records, torch.arange(4000), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(samples, 20)
    batches = [next(feed) for _ in range(2)]
    assert len(samples._ahead) == pipeline.MOST_AHEAD - 1
    assert samples._forked.batches == 7
    assert sum(made.begun for made in samples._ahead) <= 7
    assert len(records.told) == 20 * (1 + pipeline.MOST_AHEAD)
    del batches


def taken(samples: Pipeline) -> list[tuple[torch.Tensor, torch.Tensor]]:
    feed = Feed(samples, 4)
    feed.limit(3 * (feed.steps_per_epoch or 0))
    return [(batch.inputs.clone(), batch.targets) for batch in feed]


@pytest.mark.parametrize("level", ["none", "memory", "disk"])
def test_processes_give_the_images_of_a_pack_and_of_its_cache_as_threads_do(level, tmp_path, monkeypatch):
    KINDS["packed"][0](tmp_path)
    cache = Cache(path=tmp_path / "cache", **({} if level == "none" else {level: "1MB"}))
    samples = through_cache(PackedShards(folder=tmp_path, cache_mb=0).open("train"), cache, str(tmp_path))
    found = taken(samples)
    assert pids(samples)
    monkeypatch.setattr(choice, "WORTH_S", math.inf)
    for mine, others in zip(found, taken(PackedShards(folder=tmp_path, cache_mb=0).open("train")), strict=True):
        assert all(map(torch.equal, mine, others))


def test_a_pack_that_is_cut_while_it_is_read_ends_processes_and_each_sample_is_told_by_its_name(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    KINDS["packed"][0](tmp_path)
    samples, told = PackedShards(folder=tmp_path, cache_mb=0).open("train"), []
    feed = Feed(Skipping(samples, lambda *what: told.append(what)), 4)
    feed.limit(4 * (feed.steps_per_epoch or 0))
    assert [next(feed).lost for _ in range(4)] == [0] * 4
    assert pids(samples)
    for shard in (tmp_path / "train").glob("*.bin"):
        os.truncate(shard, 0)
    for batch in feed:
        assert batch.count + batch.lost == 4
    assert batch.lost == 4
    assert sorted(index for index, _ in told) == list(range(24))
    assert all("truncated at byte" in why for _, why in told)
    assert "a process that decoded samples has died" in caplog.text


def test_samples_of_a_store_without_a_cache_are_made_by_threads():
    samples = Pipeline(InStore(2000), torch.arange(2000), None, Digits(), Scale(1.0, 0.0))
    feed = Feed(samples, 20)
    for _ in range(5):
        next(feed)
    assert samples._forked is None


def open_in(pid: int) -> list[str]:
    found: list[str] = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it has been closed
            found += [str(path.readlink()).partition(":")[0]] if int(path.name) > 2 else []
    return sorted(found)


def test_a_process_has_no_file_open_but_its_two_pipes_and_those_of_the_records():
    samples = opened(2000)
    file = os.open(Path(__file__), os.O_RDONLY)
    try:
        samples.records.descriptors = (file,)
        feed = Feed(samples, 20)
        for _ in range(5):
            next(feed)
        until = time.monotonic() + 60
        for pid in pids(samples):
            while (found := open_in(pid)) != sorted([__file__, "pipe", "pipe"]):  # it closes the others first of all
                assert time.monotonic() < until, found
                time.sleep(0.01)
    finally:
        os.close(file)


def test_processes_end_with_the_one_that_forked_them_even_if_it_is_killed():
    code = f"""
import sys, time
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2])]!r}
from test_forked import Feed, choice, opened, pids
choice.WORTH_S = 0.0
samples = opened(2000)
feed = Feed(samples, 20)
for _ in range(5):
    next(feed)
print(*pids(samples), flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        forked = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        assert forked
        process.kill()
    until = time.monotonic() + 60
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in forked):
        assert time.monotonic() < until
        time.sleep(0.01)
    for one in forked:  # adopted, as tests are run
        with contextlib.suppress(ChildProcessError):
            os.waitpid(one.pid, 0)


@given(st.integers(1, 2000), st.integers(1, 300), st.sampled_from([1, 2, 16, 128, 1024]))
def test_pieces_have_each_row_once_and_those_of_all_batches_fit_into_a_pipe(rows, least, count):
    slots = most_slots(count)
    pieces = divided(rows, least, count, PIECES // slots)
    assert [row for start, stop in pieces for row in range(start, stop)] == list(range(rows))
    assert len(pieces) * slots <= PIECES
    assert len(pieces) == 1 or min(stop - start for start, stop in pieces) >= least


def test_the_last_pieces_of_a_batch_are_the_smallest_so_that_all_processes_end_at_about_the_same_time():
    sizes = [stop - start for start, stop in divided(128, 1, 2, 64)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (32, 1)


def test_where_there_is_no_memory_to_share_threads_decode(monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(pipeline, "Slots", refused)
    assert decoding(opened(200))[2] == "processes could not be started ([Errno 12] Cannot allocate memory)"
