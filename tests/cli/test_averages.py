"""Averages of weights on the command line: measured and exported when they are asked for."""

import json

import pytest
import torch
from safetensors.torch import load_file

from train.test_averages import EMA, averaged, in_checkpoint
from volary.run.directory import RunDirectory


@pytest.mark.slow  # a run of real processes, for two verbs
def test_a_run_s_average_is_evaluated_and_exported_if_asked(volary, tmp_path):
    (tmp_path / "session.yaml").write_text(averaged(EMA, {"workers": 2}).to_yaml())
    assert volary("train", "session.yaml", "evaluate.every=12 steps", "run.name=it").status == 0
    average, raw = in_checkpoint(RunDirectory(tmp_path / "runs" / "it").checkpoints)
    losses = set()
    for flags, wanted in ((["--average"], average), ([], raw)):
        assert volary("export", "it", *flags, "-o", f"{len(flags)}.safetensors").status == 0
        exported = load_file(tmp_path / f"{len(flags)}.safetensors")
        assert all(torch.equal(exported[name], one) for name, one in wanted.items())
        losses.add(json.loads(volary("evaluate", "it", *flags, "--json").out)["metrics"]["loss"])
    assert len(losses) == 2
