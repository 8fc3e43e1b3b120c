"""How fast a run computes: operations a second, and what share of a matrix product's they are."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from page._made import layers, slow_run
from volary.cli.command.main import run
from volary.monitor.compute import ComputeRate, compute_rate
from volary.monitor.digest import Follower
from volary.monitor.terminal.live import drawing
from volary.page.questions.facts import facts
from volary.train.update.precision import Precision


def test_a_step_is_three_forwards_of_each_sample_and_the_share_is_of_all_workers():
    operations = 576_000 + 7_864_320
    found = compute_rate(layers(), 1000.0, 2)
    assert found == ComputeRate(pytest.approx(3 * operations * 1000), pytest.approx(3 * operations * 1000 / (2 * 2e11)))
    assert str(found) == "25.3 GFLOP/s, 6.3 % of a matrix product's"
    assert compute_rate(None, 1000.0, 2) is None
    assert compute_rate(layers(), 0.0, 2) is None
    assert str(ComputeRate(1234.0, None)) == "1.23 kFLOP/s"


def test_show_the_live_console_and_the_page_say_it(capsys):
    directory = slow_run()
    follower = Follower(directory)
    digest = follower.look()
    follower.close()
    assert digest.window is not None
    assert digest.compute == compute_rate(layers(), digest.window.samples_per_s, 2)
    assert run(["show", "slow-1"]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("speed"))
    assert said.removeprefix("speed").strip() == f"{digest.window.samples_per_s:.4g} samples/s, {digest.compute}"
    assert facts(directory)["computes"] == str(digest.compute)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(drawing(digest, console))
    line = next(line for line in console.export_text().splitlines() if "samples/s" in line)
    assert str(digest.compute) in line


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_matrix_product_is_measured_without_drawing_a_number(precision):
    before = torch.get_rng_state()
    device = torch.device("cpu")
    assert 1e6 < Precision(precision, device).product_per_s(device) < 1e16
    assert torch.equal(torch.get_rng_state(), before)
