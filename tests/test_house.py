"""The rules of the house: who may import whom (docs/architecture.md), what stays light, what no file may hold."""

import ast
import graphlib
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from _source import (
    CHECKOUT,
    PACKAGE,
    SHAPE,
    callers,
    circles,
    documented,
    files_imported,
    functions,
    imported,
    nodes,
    public_functions,
    questions_whether_a_rank_is_0,
    raised_by,
    room_of,
    rooms_there_are,
    takes_tensors,
    types_of_a_run_of_values,
    unpickling,
    uses_of_the_default_group,
)
from volary.plugins import Room

ROOMS_PAGE = CHECKOUT / "docs" / "architecture.md"
FOR_EVERYONE = {"errors", "plugins"}
LIGHT = ("cli", "session", "run", "driver", "engine", "placement")  # answer at once: nothing heavy is imported
HEAVY = ("torch", "numpy", "rich", "PIL", "safetensors", "starlette", "uvicorn")
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".cfg", ""}
AT_ONE_LEVEL = 14  # about a dozen files, of which one is found by its name
HIDING = "What|Of|Those|These|That|It|They|So many"  # its subject, as the beginning of a docstring
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


def test_files_import_each_other_in_no_circle_at_run_time_and_in_small_ones_for_types():
    assert circles(files_imported(run_time_only=True)) == []
    large = [circle for circle in circles(files_imported(run_time_only=False)) if len(circle) > LARGEST_CIRCLE]
    assert [[str(file.relative_to(PACKAGE)) for file in circle] for circle in large] == []


def test_rooms_within_a_room_import_each_other_one_way():
    """At run time, at any depth. A room's own files, its protocols, may be above some of its rooms and below others."""
    ways = set()
    for file, others in files_imported(run_time_only=True).items():
        for one, other in ((file.relative_to(PACKAGE).parts, to.relative_to(PACKAGE).parts) for to in others):
            depth = next(at for at, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)
            if len(one) > depth + 1 and len(other) > depth + 1:
                ways.add(("/".join(one[:depth]), one[depth], other[depth]))
    assert len(ways) > 100
    assert {way for way in ways if (way[0], way[2], way[1]) in ways} == set()


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
        (
            "a docstring that hides its subject and asks nothing",
            r'^\s*"""(What|Of|Those|These|That|It|They|So many) (?!.*\?)',
        ),
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


UNPICKLES_PERHAPS = re.compile(r"pickle|dill|marshal|shelve|joblib|_object|\b(eval|exec)\(|\b(torch|np)\.load\(")


def test_nothing_that_is_read_or_received_is_unpickled():
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
    trees = {file: ast.parse(text) for file, text in texts.items() if UNPICKLES_PERHAPS.search(text)}
    assert "state_file.py" in {file.name for file in trees}
    assert [f"{file.relative_to(PACKAGE)}:{line}" for file, tree in trees.items() for line in unpickling(tree)] == []


def test_a_docstring_is_a_sentence_and_no_mere_reference():
    """A method that a protocol explains needs none; one that is there says more than its name does."""
    found = [one for file in sorted(PACKAGE.rglob("*.py")) for one in documented(file)]
    assert len(found) > 1000
    empty = [name for name, said in found if len(said.split()) <= 3 or re.fullmatch(r"See `[\w.]+`\.", said)]
    assert not empty, "\n".join(empty)


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


def test_one_type_tells_a_run_of_a_parameter_s_values():
    """A type that carries something of such a run has a `Range`; see docs/architecture.md, "Words"."""
    found = {str(file.relative_to(PACKAGE)): list(types_of_a_run_of_values(file)) for file in PACKAGE.rglob("*.py")}
    assert {file: names for file, names in found.items() if names} == {"sharding/ranges.py": ["Range"]}


def test_nobody_but_the_map_compares_a_rank_with_0():
    """Who acts for a group is `leads` of it, or of whoever has a rank in it."""
    files = {file: list(questions_whether_a_rank_is_0(file)) for file in sorted(PACKAGE.rglob("*.py"))}
    wrong = [f"{file.relative_to(CHECKOUT)}:{line}" for file, lines in files.items() for line in lines]
    assert not wrong, "\n".join(wrong)


MOST_LINES, MOST_PARAMETERS, MOST_IMPORTS = 60, 8, 24


def test_a_function_is_read_at_one_look_and_called_with_few_parameters():
    """A verb of the command line takes its options as parameters, as many as there are."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for name, lines, parameters in functions(file):
            most = 0 if room_of(file) == "cli" else parameters
            if lines > MOST_LINES or most > MOST_PARAMETERS:
                found[f"{file.relative_to(PACKAGE)} {name}"] = lines if lines > MOST_LINES else parameters
    assert found == {}


def test_a_file_knows_few_others():
    """Imports for types alone, and those within functions, count."""
    found = {str(file.relative_to(PACKAGE)): len(known) for file, known in files_imported(run_time_only=False).items()}
    assert {name: count for name, count in found.items() if count > MOST_IMPORTS} == {}


def test_one_place_writes_the_files_of_a_checkpoint_one_makes_the_row_of_a_step_and_one_puts_a_worker_together():
    """Who says when a checkpoint is written differs: ranks that keep step, the roster, a server for its slices; of a
    run that continues from a snapshot of Caffe's the first one is written before it starts.
    """
    writes, when_asked = r"(\w+\.)*write_files", {"served/saver.py": 1, "served/server/shards.py": 1}
    assert callers(writes) == {**when_asked, "saving/committing.py": 1, "beginning/first_checkpoint.py": 1}
    assert callers(r"Committing") == {"saving/saver.py": 1, "saving/background_saves.py": 1}
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
    """Counted are the files that make a worker's parts and connect them: of a session (`worker/`) and of a user's loop,
    with all parameters or over servers. What such parts then do, steps, feeds and checkpoints, is not.
    """
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
    """The name alone may stand of a file beside the one named before it."""
    page = ROOMS_PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) < 200
    wishes = [line.split("|") for line in page.splitlines() if line.startswith("| ") and line.count("|") == 4]
    assert {one[1].strip() for one in wishes if len(re.findall(r"`[\w/]+(?:\.py|/)`", one[2])) > 2} == set()
    named = set(re.findall(r"`(?:tests/)?([\w/]+\.py)", page))
    there = ["/" + str(path) for root in ("src/volary", "tests") for path in (CHECKOUT / root).rglob("*.py")]
    assert sorted(one for one in named if not any(path.endswith(f"/{one}") for path in there)) == []
    folders, roots = set(re.findall(r"`([\w/]+/)`", page)), (PACKAGE, CHECKOUT / "tests", CHECKOUT)
    assert sorted(one for one in folders if not any((root / one).is_dir() for root in roots)) == []
