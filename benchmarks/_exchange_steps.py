"""The rows of exchange.py about whole training steps: each is a lab whose ranks take turns (_exchange_turns.py)."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Literal

import _exchange_cases as cases
import _in_lab
from _exchange_cases import Case
from _exchange_found import Effort, Found, median
from _report import Options, Row


@dataclass(frozen=True)
class Question:
    """A row's question about a case: how ours compares with `against`.

    against: kinds of peers, of which the quickest counts; or the step without exchange ("compute"); or the longer of
    that and what the link needs for the bytes that ours sends ("floor"). times: the ratio says how many times quicker
    ours is, otherwise which part of the other's time it takes.
    """

    case: Case
    against: tuple[str, ...] | Literal["compute", "floor"]
    wanted: str
    times: bool = False


DDP = ("DDP",)
QUESTIONS = {
    "fc-1g": Question(cases.FC_1G, "floor", "at most 1.08"),
    "resnet-1g-2": Question(cases.RESNET_1G_2, "floor", "at most 1.10"),
    "resnet-1g": Question(cases.RESNET_1G, DDP, "at most 0.85"),
    "fc-unlimited": Question(cases.FC_UNLIMITED, DDP, "at most 0.92"),
    "resnet-unlimited": Question(cases.RESNET_UNLIMITED, DDP, "at most 1.00"),
    "fc-100m-lossless": Question(cases.FC_100M_LOSSLESS, DDP, "at least 28", times=True),
    "fc-100m-lossless-bound": Question(cases.FC_100M_LOSSLESS, "floor", "at most 1.12"),
    "fc-100m-lossy": Question(cases.FC_100M_LOSSY, "compute", "at most 1.2"),
    "fc-100m-lossy-powersgd": Question(cases.FC_100M_LOSSY, ("PowerSGD",), "at least 2.4", times=True),
    "fc-1g-lossless": Question(cases.FC_1G_LOSSLESS, DDP, "at most 0.20"),
    "fc-1g-lossless-hook": Question(cases.FC_1G_LOSSLESS, ("fp16", "PowerSGD"), "at most 0.38"),
    "fc-unlimited-lossless": Question(cases.FC_UNLIMITED_LOSSLESS, DDP, "at most 0.72"),
    "resnet-100m-lossy": Question(cases.RESNET_100M_LOSSY, DDP, "at least 5", times=True),
    "lstm-100m-lossless": Question(cases.LSTM_100M_LOSSLESS, DDP, "at least 1.35", times=True),
    "lstm-100m-lossy": Question(cases.LSTM_100M_LOSSY, "floor", "at most 1.2"),
    "gpt-1g": Question(cases.GPT_1G, DDP, "at most 0.85"),
    "gpt-1g-bound": Question(cases.GPT_1G, "floor", "at most 1.35"),
    "gpt-100m": Question(cases.GPT_100M, "floor", "at most 1.03"),
    "gpt-1g-lossy": Question(cases.GPT_1G_LOSSY, "compute", "at most 1.15"),
    "gpt-1g-lossy-hook": Question(cases.GPT_1G_LOSSY, cases.HOOKS, "at most 0.88"),
    "gpt-100m-lossy": Question(cases.GPT_100M_LOSSY, "compute", "at most 1.15"),
    "gpt-100m-lossy-hook": Question(cases.GPT_100M_LOSSY, cases.HOOKS, "at most 0.80"),
    "dilated-1g": Question(cases.DILATED_1G, DDP, "at most 0.90"),
    "dilated-100m": Question(cases.DILATED_100M, "floor", "at most 1.04"),
    "dilated-1g-lossy": Question(cases.DILATED_1G_LOSSY, cases.HOOKS, "at most 0.88"),
    "dilated-100m-lossy": Question(cases.DILATED_100M_LOSSY, cases.HOOKS, "at most 0.92"),
    "mixer-1g": Question(cases.MIXER_1G, DDP, "at most 0.85"),
    "mixer-100m-lossy": Question(cases.MIXER_100M_LOSSY, cases.HOOKS, "at most 0.92"),
}
QUICK = Effort(rounds=3, trials=0, alone=1, turn_s=2.0, steps=10, longest_s=15.0)
FULL = Effort(rounds=5, trials=1, alone=3, turn_s=4.0, steps=10, longest_s=40.0)


def found_in(case: Case, *, quick: bool) -> Found:
    """The ranks' measurements of this case. Raises LabError."""
    return found_with(case, QUICK if quick else FULL)


@cache
def found_with(case: Case, effort: Effort) -> Found:
    """Train in a lab of this case: a run like any other, with turns as its ranks' job. Raises LabError.

    Made once for all rows that ask for it.
    """
    wanted = {"effort": asdict(effort), "warm_up": case.warm_up, "peers": case.peers, "period": case.period}
    with tempfile.TemporaryDirectory() as folder:
        directory = _in_lab.run(case.session(folder), case.rate, "_exchange_turns.py", json.dumps(wanted))
        return Found.read(directory)


def answer(name: str, question: Question, found: Found) -> Row:
    """The row of a question, from what was measured."""
    kind, others = _against(question, found)
    ratios = [turn.seconds / other for turn, other in zip(found.ours, others, strict=True)]
    if question.times:
        ratios = [1 / ratio for ratio in ratios]
    ratio = statistics.median(ratios)
    print(f"{name}: {ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return Row(
        name=name,
        value=median(found.ours).seconds,
        unit="s per step",
        peer=found.peers[kind],
        peer_value=median(found.theirs[kind]).seconds,
        ratio=ratio,
        wanted=question.wanted,
        better="higher" if question.times else "lower",
    )


def _row(name: str, question: Question, options: Options) -> Row:
    found = found_in(question.case, quick=options.quick)
    row = answer(name, question, found)
    _print_turns(question.case, found)
    return row


def _against(question: Question, found: Found) -> tuple[str, list[float]]:
    """The kind of peer that the row names, and the seconds that ours is compared with, round by round."""
    if isinstance(question.against, tuple):
        kind = min(question.against, key=lambda kind: median(found.theirs[kind]).seconds)
        return kind, [turn.seconds for turn in found.theirs[kind]]
    limit_s = found.limit_s(question.case.rate) if question.against == "floor" else 0.0
    return next(iter(found.theirs)), [max(found.compute_s, limit_s)] * len(found.ours)


def _print_turns(case: Case, found: Found) -> None:
    compute_s, limit_s = found.compute_s, found.limit_s(case.rate)
    print(
        f"  compute {compute_s:.3f} s, limit {limit_s:.3f} s;"
        f" a host has to send {median(found.ours).payload_bytes / 1e6:.1f} MB a step"
    )
    for who, turns in [("ours", found.ours), *((found.peers[kind], each) for kind, each in found.theirs.items())]:
        turn = median(turns)
        print(
            f"  {who}: {turn.seconds:.3f} s, {turn.seconds / max(compute_s, limit_s):.3f} of max(compute, limit);"
            f" CPU {turn.cpu_s:.2f} s over all ranks; a host sent {turn.sent_bytes / 1e6:.1f} MB"
        )
    if found.ways:
        print("  ways of ours:", ", ".join(f"{way} for {count}" for way, count in found.ways.items()))
    if len(found.tried) > len(found.peers):
        print("  tried:", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in found.tried.items()))


ROWS: dict[str, Callable[[Options], Row]] = {
    name: partial(_row, name, question) for name, question in QUESTIONS.items()
}
