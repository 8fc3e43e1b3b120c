"""Threads for pieces of work: all is done, none is left, and the end of a process waits for none for ever."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from volary.data.loading.threads import Threads


def of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_everything_is_done_by_no_more_threads_than_said_and_none_is_left():
    threads, done, most = Threads(3, "pieces"), [], []
    several = threading.Barrier(3)

    def piece(number: int) -> None:
        if number < 3:
            several.wait(60)  # three at once
        most.append(len(of("pieces")))
        done.append(number)

    threads.submit([lambda n=n: piece(n) for n in range(50)])
    for thread in of("pieces"):
        thread.join(60)
    assert sorted(done) == list(range(50))
    assert max(most) <= 3
    assert not of("pieces")


def test_what_has_not_begun_is_forgotten_at_the_end():
    threads, begun, go, done = Threads(1, "pieces"), threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go.wait(60)
        done.append("first")

    threads.submit([first, lambda: done.append("second")])
    assert begun.wait(60)
    threads.end(0.0)  # it does not wait for the one that is stuck
    assert done == []
    go.set()
    threads.end(60)
    assert done == ["first"]


@pytest.mark.parametrize("stuck", ["", "threading.Event().wait()"])
def test_a_process_ends_in_order_while_threads_decode_or_are_stuck(stuck):
    code = f"""
import io, threading
import simplejpeg
from volary.data.loading import threads
threads.ENDING_S = 0.5
content = simplejpeg.encode_jpeg(__import__("numpy").zeros((512, 512, 3), "uint8"))
def piece():
    {stuck}
    simplejpeg.decode_jpeg(content)
pool = threads.Threads(2, "decode")
pool.submit([piece] * 100_000)
print("said", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said\n", "")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_is_replaced_and_the_rest_is_done():
    threads, done, finished = Threads(2, "pieces"), [], threading.Event()

    def ending() -> None:
        raise SystemExit(1)

    threads.submit([*[ending] * 3, *(lambda n=n: done.append(n) for n in range(20)), finished.set])
    assert finished.wait(60)
    for thread in of("pieces"):
        thread.join(60)
    assert sorted(done) == list(range(20))


def test_their_number_may_change_while_they_work():
    threads, by = Threads(1, "pieces"), []

    def fewer() -> None:
        threads.count = 1

    threads.count = 3
    several = threading.Barrier(3, action=fewer)
    pieces = [lambda: several.wait(60)] * 3  # three at once
    threads.submit([*pieces, *[lambda: by.append(threading.get_ident())] * 50])
    for thread in of("pieces"):
        thread.join(60)
    assert len(by) == 50
    assert len(set(by)) == 1
