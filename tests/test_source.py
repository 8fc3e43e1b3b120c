"""Code that breaks a rule of the house is found, however it is written."""

import ast

from _source import DOOR, circles, imported, questions_whether_a_rank_is_0, unpickling, uses_of_the_default_group


def test_imports_are_found_wherever_they_stand(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "import os, volary, volary.comm.control.connection as link\n"
        "from volary import run, Session, __version__\n"
        "if TYPE_CHECKING:\n    from volary.data.feed import Feed\n"
        "def later():\n    import volary.session\n"
        "    return volary.launch, volary.__version__, volary.errors.BadInput\n"
        "import_module('volary.api').train(importlib.import_module('ray'))\n"
    )
    assert {room for _, room in imported(file)} == {"comm", "run", DOOR, "data", "session", "errors", "api"}
    assert len(list(imported(file))) == 8


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_uses_of_torch_s_default_group_are_found_however_they_are_written(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "import torch\nimport torch.distributed as dist\nfrom torch import distributed\n"
        "from torch.distributed import all_reduce, get_rank, ReduceOp, Store\n"
        "from torch.distributed.distributed_c10d import _get_default_store\n"
        "torch.distributed.barrier()\ndist.new_group([0])\ndistributed.isend(x, 1)\nall_reduce(x)\nget_rank()\n"
        "_get_default_store()\nreduce = dist.all_gather\ndist.group.WORLD\n"
        "dist.all_reduce(x, op=ReduceOp.MAX, group=mine)\nget_rank(group=mine)\ndist.HashStore()\n"
    )
    found = [name for _, name in sorted(uses_of_the_default_group(file))]
    first = ["barrier", "new_group", "isend", "all_reduce", "get_rank", "_get_default_store", "all_gather", "group"]
    assert found == first


def test_what_unpickles_is_found_however_it_is_written():
    bad = ["import pickle", "from dill import loads", "import torch; torch.load(x)", "np.load(x, allow_pickle=True)"]
    bad += [
        "torch.load(x, weights_only=False)",
        "dist.all_gather_object(a, b)",
        "dist.broadcast_object_list(a)",
        "eval(x)",
    ]
    assert [text for text in bad if not list(unpickling(ast.parse(text)))] == []
    good = "torch.load(x, weights_only=True)\nnp.load(x, allow_pickle=False)\nmodule.eval()"
    assert not list(unpickling(ast.parse(good)))


def test_questions_whether_a_rank_is_0_are_found_however_they_are_written(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "rank == 0\nself._group.rank != 0\n0 == place.local_rank\nif rank > 0:\n    pass\n"
        "rank < 0\nassert 0 <= rank < size\nrank == 1\nlen(ranks) == 0\n-rank\nif ranks:\n    pass\n"
        "a if rank else b\nnot place.rank\nready and self.rank\n"
    )
    assert list(questions_whether_a_rank_is_0(file)) == [1, 2, 3, 4, 13, 14, 15]
