"""Warnings that all workers give alike are shown once, when the last one has given them, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.driver.watching.alike import Alike

SAME, OTHER = ["0x1p+0", "0x1p+1"], ["0x1p+0", "0x1p+2"]
BATCHES = "all workers learn from the same batches: their losses are equal, bit for bit, in each of the first 2 steps"


def told(*workers: tuple[list[str], dict[str, str]]) -> list[str]:
    alike = Alike(len(workers))
    return [text for rank, (losses, drawn) in enumerate(workers) for text in alike.did(rank, losses, drawn)]


def test_equal_losses_are_told_once_all_workers_have_said_theirs():
    alike = Alike(3)
    assert [[*alike.did(rank, SAME, {})] for rank in (2, 0)] == [[], []]
    (text,) = alike.did(1, SAME, {})
    assert text.startswith(BATCHES)
    assert [*alike.did(1, SAME, {})] == []


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([(SAME, {}), (OTHER, {})], ""),
        ([([], {}), ([], {})], ""),
        ([(SAME, {}), ([], {})], ""),
        ([(SAME, {"torch": "a"}), (SAME, {"torch": "a"})], BATCHES),
        ([(SAME, {"torch": "a"}), (OTHER, {"torch": "a"})], "torch.manual_seed(seed + worker.rank) before the loop"),
        ([([], {"numpy": "a", "torch": "b"}), ([], {"numpy": "a"})], "numpy.random.seed(seed + worker.rank) before"),
        ([([], {"torch": "a"}), ([], {"torch": "b"})], ""),
        ([([], {"torch": "a"}), ([], {})], ""),
        ([(SAME, {"torch": "a"})], ""),
    ],
)
def test_random_numbers_are_told_where_batches_are_not(workers, said):
    texts = told(*workers)
    assert [said in text for text in texts] == [True] * bool(said)


def test_a_file_is_told_that_several_workers_of_a_machine_write_and_the_first_of_these_alone():
    alike, here = Alike(3), str(Path.cwd())
    assert [*alike.writes(1, "a", f"{here}/out.pt", "mine.py:3")] == []
    assert [*alike.writes(1, "a", f"{here}/out.pt", "mine.py:9")] == []
    assert [*alike.writes(2, "b", f"{here}/out.pt", "mine.py:3")] == []
    assert [*alike.writes(0, "a", f"{here}/other.pt", "mine.py:4")] == []
    (text,) = alike.writes(0, "a", f"{here}/out.pt", "mine.py:3")
    assert text.startswith(
        "ranks 0 and 1 both write out.pt (mine.py:3), and spoil what the other has written; accepted:"
    )
    assert [*alike.writes(1, "a", f"{here}/other.pt", "mine.py:4")] == []
