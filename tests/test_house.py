"""The rules of the house: who may import whom (docs/architecture.md), what stays light, what no file may hold."""

import ast
import collections
import functools
import graphlib
import importlib
import inspect
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

from volary.plugins import Room

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "src" / "volary"
ROOMS_PAGE = CHECKOUT / "docs" / "architecture.md"
FOR_EVERYONE = {"errors", "plugins"}
DOOR = "volary"  # the package's own __init__.py
LIGHT = ("cli", "session", "run", "driver", "engine", "placement")  # answer at once: nothing heavy is imported
HEAVY = ("torch", "numpy", "rich", "PIL", "safetensors", "starlette", "uvicorn")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ""}
AT_ONE_LEVEL = 14  # about a dozen files, of which one is found by its name
KEPT = ("src", "tests", "docs", "examples", "benchmarks", "tools", ".ci")


def rooms_table():
    """Room to what it may import, read from the section "Rooms" of the page. "all below": every row after it."""
    section = ROOMS_PAGE.read_text(encoding="utf-8").partition("\n## Rooms\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert rows[0] == ["room", "purpose", "may import"]
    rooms, table = [row[0].strip("`") for row in rows[2:]], {}
    for number, (*_, may) in enumerate(rows[2:]):
        below = may == "all below"
        table[rooms[number]] = set(rooms[number + 1 :]) if below else set(re.findall(r"`(\w+)`", may))
    return table


def room_of(file):
    return DOOR if file == PACKAGE / "__init__.py" else file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def tree(file):
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def by_type(file):
    """All nodes of the file's tree, by their type: a walk through all trees takes seconds."""
    found = collections.defaultdict(list)
    for node in ast.walk(tree(file)):
        found[type(node)].append(node)
    return found


def nodes(file, *types):
    """The nodes of the file's tree that are of these types."""
    return itertools.chain.from_iterable(by_type(file)[one] for one in types)


@functools.cache
def called(file):
    """What the file calls, as it is written, once for each call."""
    return [ast.unparse(node.func) for node in nodes(file, ast.Call)]


@functools.cache
def rooms_there_are():
    return {room_of(file) for file in PACKAGE.rglob("*.py")}


def imported(file):
    """(line, room) of every import of ours in `file`, also inside functions, under TYPE_CHECKING, and by a name."""
    rooms = rooms_there_are()
    for node in nodes(file, ast.Import, ast.ImportFrom, ast.Attribute, ast.Call):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name != "volary"]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import; write volary.{room_of(file)}..."
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "volary":
            names = [f"volary.{node.attr}"]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            names = [named.value for named in node.args if isinstance(named, ast.Constant)]
        for name in names:
            package, _, rest = name.partition(".")
            first = rest.partition(".")[0]
            if package == "volary" and (first in rooms or not first.startswith("__")):  # __version__ is everybody's
                yield node.lineno, first if first in rooms else DOOR


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


def test_every_room_has_its_row_and_every_row_its_room():
    table = rooms_table()
    assert set(table) == rooms_there_are()
    assert all(may <= set(table) for may in table.values()), "a row names a room that does not exist"


def test_imports_go_only_where_the_table_allows():
    table = rooms_table()
    wrong = [
        f"{file.relative_to(CHECKOUT)}:{line}: {room_of(file)} may not import {room}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, room in imported(file)
        if room not in table[room_of(file)] | FOR_EVERYONE | {room_of(file)}
    ]
    assert not wrong, "\n".join(wrong)


def test_the_table_has_no_cycle():
    assert rooms_table()["storage"] == set()
    graphlib.TopologicalSorter({room: may - {room} for room, may in rooms_table().items()}).prepare()


LARGEST_CIRCLE = 3  # files that import each other in a circle, imports for types alone included
BOTH_WAYS = {("train", "state", "update")}  # at run time


def files_imported(run_time_only):
    """File to the files of the package that it imports anywhere, or anywhere but under TYPE_CHECKING."""
    modules = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in PACKAGE.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}
    found = {}
    for file in modules.values():
        typed = [node for node in nodes(file, ast.If) if "TYPE_CHECKING" in ast.unparse(node.test)]
        typed = typed if run_time_only else []
        left_out = {id(node) for block in typed for part in block.body for node in ast.walk(part)}
        names = []
        for node in (node for node in nodes(file, ast.Import, ast.ImportFrom) if id(node) not in left_out):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            else:
                names += [f"{node.module}.{alias.name}" for alias in node.names]
        targets = {modules.get(name) or modules.get(name.rpartition(".")[0]) for name in names}
        found[file] = {one for one in targets if one is not None and room_of(one) != DOOR} - {file}
    return found


def circles(graph):
    """The largest sets of files in which each file reaches each other one along imports (Tarjan 1972)."""
    number, lowest, path, found = {}, {}, [], []

    def visit(file):
        number[file] = lowest[file] = len(number)
        path.append(file)
        for other in graph[file]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[file] = min(lowest[file], lowest[other])
        if lowest[file] == number[file]:
            found.append([path.pop() for _ in range(len(path) - path.index(file))])

    for file in graph:
        if file not in number:
            visit(file)
    return [circle for circle in found if len(circle) > 1]


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_files_import_each_other_in_no_circle_at_run_time_and_in_small_ones_for_types():
    assert circles(files_imported(run_time_only=True)) == []
    large = [circle for circle in circles(files_imported(run_time_only=False)) if len(circle) > LARGEST_CIRCLE]
    assert [[str(file.relative_to(PACKAGE)) for file in circle] for circle in large] == []


def test_rooms_within_a_room_import_each_other_one_way():
    """A room's own files, its protocols, may be above some of its rooms and below others."""
    ways = set()
    for file, others in files_imported(run_time_only=True).items():
        for one, other in ((file.relative_to(PACKAGE).parts, to.relative_to(PACKAGE).parts) for to in others):
            if len(one) > 2 and len(other) > 2 and one[0] == other[0] and one[1] != other[1]:
                ways.add((one[0], one[1], other[1]))
    both = {(room, one, other) for room, one, other in ways if one < other and (room, other, one) in ways}
    assert both - BOTH_WAYS == set()


DEFAULT_GROUP = {  # what is torch's default group, asks for it, or makes groups out of it
    *("init_process_group", "destroy_process_group", "is_initialized", "new_group", "new_subgroups", "split_group"),
    *("group", "GroupMember", "device_mesh", "DeviceMesh", "init_device_mesh"),
}


def uses_of_the_default_group(file):
    """(line, name) where `file` uses torch's default group: makes it, or calls a function of it without `group=`."""
    names = {}  # by what the file calls it: its name in torch
    for node in nodes(file, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            own = [one for one in node.names if one.name.partition(".")[0] == "torch"]
            names |= {one.asname or "torch": one.name if one.asname else "torch" for one in own}
        elif (node.module or "").partition(".")[0] == "torch":
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}

    def in_torch(node):
        if isinstance(node, ast.Attribute):
            return f"{in_torch(node.value)}.{node.attr}"
        return names.get(node.id, "") if isinstance(node, ast.Name) else ""

    calls = {id(node.func): node for node in nodes(file, ast.Call)} if names else {}
    for node in nodes(file, ast.Attribute, ast.Name) if names else ():
        module, _, name = in_torch(node).rpartition(".")
        if module not in ("torch.distributed", "torch.distributed.distributed_c10d"):
            continue
        function = getattr(torch.distributed, name, None)
        needs = inspect.isfunction(function) and "group" in inspect.signature(function).parameters
        call = calls.get(id(node))
        given = call is not None and any(one.arg == "group" for one in call.keywords)
        if name in DEFAULT_GROUP or name.startswith("_get_default") or (needs and not given):
            yield node.lineno, name


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


def test_only_the_file_that_makes_groups_uses_torch_s_default_one():
    maker = PACKAGE / "comm" / "groups" / "group.py"
    assert list(uses_of_the_default_group(maker)), "it is what is searched for"
    wrong = [
        f"{file.relative_to(CHECKOUT)}:{line}: {name}: give it a `Group`'s process_group as `group=`"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, name in uses_of_the_default_group(file)
        if file != maker
    ]
    assert not wrong, "\n".join(wrong)


def rooms_of_plugins():
    doors = sorted(PACKAGE.rglob("__init__.py"))
    with_plugins = [file.parent for file in doors if "\nROOM = Room(" in file.read_text(encoding="utf-8")]
    return [".".join(folder.relative_to(PACKAGE.parent).parts) for folder in with_plugins]


def folders_of_plugins():
    return {PACKAGE.parent.joinpath(*package.split(".")) for package in rooms_of_plugins()}


def test_no_room_has_more_files_at_one_level_than_one_is_found_among():
    """Plug-ins and verbs are not counted: there may be as many as there are."""
    listed = folders_of_plugins() | {PACKAGE / "cli"}
    rooms = [door.parent for door in PACKAGE.rglob("__init__.py") if door.parent not in listed]
    counts = {str(room.relative_to(PACKAGE)): len(list(room.glob("*.py"))) - 1 for room in rooms}
    assert {room: count for room, count in counts.items() if count > AT_ONE_LEVEL} == {}


def test_no_file_begins_with_an_underscore_but_the_protocol_beside_plugins():
    """Who reads a room is to see what there is: plug-ins and their protocol, or a library's files by their names."""
    allowed = {folder / "_base.py" for folder in folders_of_plugins()}
    found = [file for file in PACKAGE.rglob("_*.py") if not file.name.startswith("__") and file not in allowed]
    assert [str(file.relative_to(PACKAGE)) for file in found] == []


@pytest.mark.parametrize("package", rooms_of_plugins())
def test_every_plugin_loads_by_its_name_and_has_its_row_in_the_guide(package):
    module = importlib.import_module(package)
    room: Room = module.ROOM
    assert not set(room.names()) & set(room.planned), "built and still called planned"
    for name in room.names():
        assert room.load(name) is not None
    guide = re.search(r"Guide: (docs/[\w-]+\.md)", module.__doc__ or "")
    assert guide, "the room's door names its guide"
    page = CHECKOUT / guide[1]
    assert page.is_file(), f"{guide[1]} is missing"
    missing = [name for name in room.names() if f"`{name}`" not in page.read_text(encoding="utf-8")]
    assert not missing, f"{guide[1]} has no row for {', '.join(missing)}"


def test_the_command_line_the_driver_and_all_settings_import_nothing_heavy():
    files = [file for room in LIGHT for file in sorted((PACKAGE / room).rglob("*.py"))]
    for package in rooms_of_plugins():
        files += sorted((PACKAGE.parent / package.replace(".", "/")).glob("[a-z]*.py"))
    names = [".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files]
    code = f"""
import importlib, json, sys
found = {{}}
for name in {[name.removesuffix(".__init__") for name in names]}:
    importlib.import_module(name)
    for heavy in {HEAVY}:
        if heavy in sys.modules:
            found.setdefault(heavy, name)
print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}, "what was imported, and while importing which module"


def files_that_are_kept():
    files = [file for folder in KEPT for file in (CHECKOUT / folder).rglob("*")]
    files += [file for file in CHECKOUT.iterdir() if not file.name.startswith(".")]
    files = [file for file in files if file.is_file() and file.suffix in TEXT]
    return [file for file in files if "__pycache__" not in file.parts and file != Path(__file__).resolve()]


def test_nothing_that_is_to_be_ignored_is_committed():
    """A link in the place of an ignored folder would remove that folder in every checkout that it is merged into."""
    if not (CHECKOUT / ".git").exists():
        pytest.skip("no checkout of git's")
    command = ["git", "-C", str(CHECKOUT), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout == ""


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("an unfinished thought", r"\b(TODO|FIXME|XXX|HACK)\b|door to be written"),
        ("a path of one machine", r"(?<![\w./~-])/(root|Users|work|tmp)/\w"),
    ],
)
def test_no_file_holds(what, pattern):
    found = []
    for file in files_that_are_kept():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data without a name that says so
        found += [
            f"{file.relative_to(CHECKOUT)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if re.search(pattern, line)
        ]
    assert not found, "\n".join(found)


READS_PLAIN_VALUES = {"torch.load": "weights_only", "np.load": "allow_pickle"}
UNPICKLES = re.compile(
    r"\b(c?pickle|cloudpickle|dill|marshal|shelve|joblib)\b|gather_object$|_object_list$|^(eval|exec)$"
)


UNPICKLES_PERHAPS = re.compile(r"pickle|dill|marshal|shelve|joblib|_object|\b(eval|exec)\(|\b(torch|np)\.load\(")


def unpickling(tree):
    """Lines that import or call what runs what it reads; torch and numpy are told not to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            if any(UNPICKLES.search(name) for name in names):
                yield node.lineno
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            said = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            told = READS_PLAIN_VALUES.get(called)
            if UNPICKLES.search(called) or (told and said.get(told) != str(told == "weights_only")):
                yield node.lineno


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


def test_nothing_that_is_read_or_received_is_unpickled():
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
    trees = {file: ast.parse(text) for file, text in texts.items() if UNPICKLES_PERHAPS.search(text)}
    assert "state_file.py" in {file.name for file in trees}
    assert [f"{file.relative_to(PACKAGE)}:{line}" for file, tree in trees.items() for line in unpickling(tree)] == []


def documented(file):
    """(name, docstring) of every class and function of `file` that has one."""
    for node in nodes(file, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        if said := ast.get_docstring(node):
            yield f"{file.relative_to(PACKAGE)}:{node.lineno}: {node.name}", said


def test_a_docstring_is_a_sentence_and_no_mere_reference():
    """A method that a protocol explains needs none; one that is there says more than its name does."""
    found = [one for file in sorted(PACKAGE.rglob("*.py")) for one in documented(file)]
    assert len(found) > 1000
    empty = [name for name, said in found if len(said.split()) <= 3 or re.fullmatch(r"See `[\w.]+`\.", said)]
    assert not empty, "\n".join(empty)


def raised_by(function):
    """The errors that it raises itself: not what a function within raises, nor what it catches."""
    found, waiting = set(), [(node, False) for node in function.body]
    while waiting:
        node, caught = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None and not caught:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            found |= {name for name in [getattr(error, "attr", getattr(error, "id", ""))] if name[:1].isupper()}
        tried = node.body if isinstance(node, ast.Try) and node.handlers else []
        waiting += [(child, caught or child in tried) for child in ast.iter_child_nodes(node)]
    return found


def public_functions(file):
    """(class, function) of each of a file's public functions and methods; None for the class of a function."""
    yield from ((None, node) for node in tree(file).body if isinstance(node, ast.FunctionDef))
    classes = (node for node in nodes(file, ast.ClassDef) if not node.name.startswith("_"))
    yield from ((kind, node) for kind in classes for node in kind.body if isinstance(node, ast.FunctionDef))


ONE_TENSOR = re.compile(r"(?<!\w)(?:torch\.)?Tensor(?!\w)")
_SIZE = r"(?:\.\.\.|[\w.]+(?:\([\w.]+\))?(?: [*+/-] [\w.]+)*)"
# (n,), (rows, columns), (n, ...), or in words
SHAPE = re.compile(rf"\({_SIZE},\)|\({_SIZE}(?:, {_SIZE})+\)|\(\.\.\.\)|\bshapes?\b|\bscalar\b")


def takes_tensors(function):
    """Whether a parameter or what it returns is a tensor, alone or in a tuple; those in lists may be of any shape."""
    arguments = function.args
    hints = [one.annotation for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    texts = [ast.unparse(hint) for hint in (*hints, function.returns) if hint is not None]
    return any(ONE_TENSOR.search(re.sub(r"\b(?!tuple\b)\w+\[.*\]", "", text)) for text in texts)


def test_a_public_function_of_a_tensor_says_its_shape_or_its_protocol_does():
    promised, silent = set(), {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for kind, function in public_functions(file):
            if not takes_tensors(function) or (function.name[0] == "_" and function.name != "__init__"):
                continue
            said = " ".join(ast.get_docstring(one) or "" for one in (kind, function) if one is not None)
            protocol = kind is not None and any(re.search("Protocol|ABC", ast.unparse(one)) for one in kind.bases)
            if SHAPE.search(said):
                promised |= {function.name} if protocol or file.name == "_base.py" else set()
            else:
                silent[f"{file.relative_to(PACKAGE)}:{function.lineno}"] = function.name
    assert len(promised) >= 10
    assert {where: name for where, name in silent.items() if name not in promised} == {}


def test_a_public_function_that_raises_says_so_or_its_protocol_does():
    """Verbs are not looked at: their docstrings are what the command line prints."""
    promised, silent = set(), {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for kind, function in public_functions(file) if room_of(file) != "cli" else ():
            said = " ".join(ast.get_docstring(one) or "" for one in (kind, function) if one is not None)
            protocol = kind is not None and any(re.search("Protocol|ABC", ast.unparse(one)) for one in kind.bases)
            if "aise" in said and protocol:
                promised.add(function.name)
            raised = raised_by(function)
            if raised and "aise" not in said and not any(name in said for name in raised) and function.name[0] != "_":
                silent[f"{file.relative_to(PACKAGE)}:{function.lineno}"] = function.name
    assert len(promised) > 30
    assert {where: name for where, name in silent.items() if name not in promised} == {}


RUN_OF_VALUES = {"name", "names", "parameter", "tensor", "number"}  # beside a start and an end


def types_of_a_run_of_values(file):
    """The dataclasses and named tuples that say which values of which parameter they mean."""
    for node in nodes(file, ast.ClassDef):
        made = " ".join(map(ast.unparse, (*node.decorator_list, *node.bases)))
        own = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        if re.search(r"\bdataclass\b|\bNamedTuple\b", made) and {"start", "end"} <= own and own & RUN_OF_VALUES:
            yield node.name


def test_one_type_tells_a_run_of_a_parameter_s_values():
    """What carries something of such a run has a `Range`; see docs/architecture.md, "Words"."""
    found = {str(file.relative_to(PACKAGE)): list(types_of_a_run_of_values(file)) for file in PACKAGE.rglob("*.py")}
    assert {file: names for file, names in found.items() if names} == {"sharding/ranges.py": ["Range"]}


def comparisons_of_a_rank_with_0(file):
    """Lines that ask whether a rank is the first one."""
    for node in nodes(file, ast.Compare):
        if isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Gt):
            sides = [node.left, *node.comparators]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in sides]
            zero = any(isinstance(side, ast.Constant) and side.value == 0 for side in sides)
            if zero and any(re.search(r"(^|_)rank$", name) for name in names):
                yield node.lineno


def test_comparisons_of_a_rank_with_0_are_found_however_they_are_written(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        "rank == 0\nself._group.rank != 0\n0 == place.local_rank\nif rank > 0:\n    pass\n"
        "rank < 0\nassert 0 <= rank < size\nrank == 1\nlen(ranks) == 0\n"
    )
    assert list(comparisons_of_a_rank_with_0(file)) == [1, 2, 3, 4]


def test_nobody_but_the_map_compares_a_rank_with_0():
    """Who acts for a group is `leads` of it, or of whoever has a rank in it."""
    files = {file: list(comparisons_of_a_rank_with_0(file)) for file in sorted(PACKAGE.rglob("*.py"))}
    wrong = [f"{file.relative_to(CHECKOUT)}:{line}" for file, lines in files.items() for line in lines]
    assert not wrong, "\n".join(wrong)


MOST_LINES, MOST_PARAMETERS, MOST_IMPORTS = 60, 8, 24


def functions(file):
    """(name, lines, parameters besides self) of every function of `file` that does something."""
    for node in nodes(file, ast.FunctionDef, ast.AsyncFunctionDef):
        last = node.body[-1]
        if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = len([one for one in given if one.arg not in ("self", "cls")])
            yield node.name, node.end_lineno - node.lineno + 1, parameters


def test_a_function_is_read_at_one_look_and_called_with_few_parameters():
    """What a verb of the command line takes are its options, as many as there are."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for name, lines, parameters in functions(file):
            most = 0 if room_of(file) == "cli" else parameters
            if lines > MOST_LINES or most > MOST_PARAMETERS:
                found[f"{file.relative_to(PACKAGE)} {name}"] = lines if lines > MOST_LINES else parameters
    assert found == {}


def test_a_file_knows_few_others():
    found = {}
    for file in PACKAGE.rglob("*.py"):
        known = {node.module for node in nodes(file, ast.ImportFrom)}
        found[str(file.relative_to(PACKAGE))] = len([one for one in known if (one or "").startswith("volary")])
    assert {name: count for name, count in found.items() if count > MOST_IMPORTS} == {}


def callers(pattern, room="train"):
    """The files of a room in which `pattern` is called, by their paths in it."""
    calls = re.compile(pattern)
    files = {}
    for file in sorted((PACKAGE / room).rglob("*.py")):
        count = sum(bool(calls.fullmatch(one)) for one in called(file))
        if count:
            files[str(file.relative_to(PACKAGE / room))] = count
    return files


def test_one_place_writes_the_files_of_a_checkpoint_one_makes_the_row_of_a_step_and_one_puts_a_worker_together():
    """Who says when a checkpoint is written differs: ranks that keep step, the roster, a server for its slices; of a
    run that continues from a snapshot of Caffe's the first one is written before it starts.
    """
    writes, when_asked = r"(\w+\.)*write_files", {"served/saver.py": 1, "served/server/shards.py": 1}
    assert callers(writes) == {**when_asked, "state/committing.py": 1, "beginning/first_checkpoint.py": 1}
    assert callers(r"Committing") == {"worker/saver.py": 1, "worker/background_saves.py": 1}
    assert callers(r"(\w+\.)*_?recorder\.end_step") == {"replica.py": 1}
    for made in ("ServedReplica", "ByRoster", "WorkerState", "Residuals", "linked"):
        assert callers(made) == {"worker/over_servers.py": 1}, made
    assert callers("PushEncoding") == {"served/push_settings.py": 1}


PUT_TOGETHER = (  # in `train`: what makes a worker of a session or of a user's loop; what its steps do is elsewhere
    *("worker", "own/startup/joining.py", "own/loop_backend.py", "own/replicated_loop.py"),
    *("own/served/loop_start.py", "own/served/loop.py", "own/served/joining.py", "own/served/model.py"),
    "own/model/distribution.py",
)
MOST_LINES_TO_PUT_TOGETHER = 3200


def test_a_worker_is_put_together_in_few_lines_whoever_owns_its_loop_and_keeps_its_parameters():
    places = [PACKAGE / "train" / name for name in PUT_TOGETHER]
    files = [file for place in places for file in ([place] if place.suffix else sorted(place.rglob("*.py")))]
    assert len(files) > 20
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    assert lines <= MOST_LINES_TO_PUT_TOGETHER


def test_one_place_looks_up_the_order_of_samples_and_who_coordinates_reads_through_it():
    """One reader is of a session's samples, one of a user's loader; both are of `volary.data.reader`."""
    assert callers("order_of", "data") == {"sample_reader.py": 1}
    assert callers("reading", "data") == {"sharing/loader_reader.py": 1}
    readers = "SampleReader|LoaderReader"
    assert callers(readers, "data") == {"feed.py": 1, "sharing/indexed.py": 1}
    assert callers(readers) == {"own/served/portions.py": 1, "served/by_roster.py": 1, "served/served_data.py": 1}


def test_the_map_says_which_share_of_a_batch_is_whose():
    """The roster deals shares to whoever is here; see `volary.sharding.samples`."""
    made = {room: callers("SampleShare", room) for room in ("data", "partition", "server", "sharding", "train")}
    assert made.pop("sharding") == {"groups.py": 1, "samples.py": 1}
    assert made.pop("server") == {"roster/portions.py": 1}
    assert made.pop("train") == {"own/served/position.py": 1}
    assert not any(made.values())


def test_few_places_ask_whether_parameters_are_on_servers():
    asks = re.compile(r"\bstrategy\.servers\b")
    files = [file for file in PACKAGE.rglob("*.py") if asks.search(file.read_text(encoding="utf-8"))]
    assert len(files) <= 4, sorted(str(file.relative_to(PACKAGE)) for file in files)


def test_a_class_name_has_one_meaning():
    homes = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in nodes(file, ast.ClassDef):
            if not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    assert len(homes) > 400
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_every_file_and_folder_that_the_map_names_is_there():
    """Of a file beside the one named before it, its name alone may stand."""
    page = ROOMS_PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) < 200
    named = set(re.findall(r"`(?:tests/)?([\w/]+\.py)", page))
    there = ["/" + str(path) for root in ("src/volary", "tests") for path in (CHECKOUT / root).rglob("*.py")]
    assert sorted(one for one in named if not any(path.endswith(f"/{one}") for path in there)) == []
    folders, roots = set(re.findall(r"`([\w/]+/)`", page)), (PACKAGE, CHECKOUT / "tests", CHECKOUT)
    assert sorted(one for one in folders if not any((root / one).is_dir() for root in roots)) == []
