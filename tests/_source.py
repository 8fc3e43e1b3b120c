"""The source of the package, read as trees: what a file imports, calls, raises and says, for the rules of the house."""

import ast
import collections
import functools
import inspect
import itertools
import re
from pathlib import Path

import torch.distributed

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "src" / "volary"
DOOR = "volary"  # the package's own __init__.py


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
    """The names that the file calls, as they are written, once for each call."""
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


READS_PLAIN_VALUES = {"torch.load": "weights_only", "np.load": "allow_pickle"}
UNPICKLES = re.compile(
    r"\b(c?pickle|cloudpickle|dill|marshal|shelve|joblib)\b|gather_object$|_object_list$|^(eval|exec)$"
)


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


def documented(file):
    """(name, docstring) of every class and function of `file` that has one."""
    for node in nodes(file, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        if said := ast.get_docstring(node):
            yield f"{file.relative_to(PACKAGE)}:{node.lineno}: {node.name}", said


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


def questions_whether_a_rank_is_0(file):
    """Lines that compare a rank with 0, or take it for true or false."""
    for node in nodes(file, ast.Compare):
        if isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Gt):
            sides = [node.left, *node.comparators]
            zero = any(isinstance(side, ast.Constant) and side.value == 0 for side in sides)
            if zero and any(map(_is_rank, sides)):
                yield node.lineno
    asked = [node.test for node in nodes(file, ast.If, ast.IfExp, ast.While)]
    asked += [node.operand for node in nodes(file, ast.UnaryOp) if isinstance(node.op, ast.Not)]
    both = [
        node.values for node in nodes(file, ast.BoolOp) if isinstance(node.op, ast.And)
    ]  # `rank or 0` has a default
    asked += [value for values in both for value in values]
    yield from (node.lineno for node in asked if _is_rank(node))


def _is_rank(node):
    return re.search(r"(^|_)rank$", getattr(node, "attr", getattr(node, "id", ""))) is not None


def functions(file):
    """(name, lines, parameters besides self) of every function of `file` that does something."""
    for node in nodes(file, ast.FunctionDef, ast.AsyncFunctionDef):
        last = node.body[-1]
        if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = len([one for one in given if one.arg not in ("self", "cls")])
            yield node.name, node.end_lineno - node.lineno + 1, parameters


def callers(pattern, room="train"):
    """The files of a room in which `pattern` is called, by their paths in it."""
    calls = re.compile(pattern)
    files = {}
    for file in sorted((PACKAGE / room).rglob("*.py")):
        count = sum(bool(calls.fullmatch(one)) for one in called(file))
        if count:
            files[str(file.relative_to(PACKAGE / room))] = count
    return files
