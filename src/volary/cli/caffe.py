"""Show, import and train networks of Caffe's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import new_file, remark, say, say_json, say_pairs, say_table
from volary.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from volary.network.caffe.solver.snapshot import SolverSnapshot
    from volary.placement import Place
    from volary.run.directory import RunDirectory
    from volary.session import Session

_debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
_net = click.argument("net", type=click.Path(path_type=Path))
_weights = click.argument("weights", type=click.Path(path_type=Path), required=False)


class ShapeType(click.ParamType[tuple[int, ...]]):
    """The shape of one sample, as 3,224,224."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """The numbers. Raises BadInput for anything else."""
        if isinstance(value, tuple):
            return value
        sides = str(value).replace("x", ",").split(",")
        if not all(side.strip().isdecimal() and int(side) > 0 for side in sides):
            raise BadInput(f"--shape is {value!r}; accepted: sizes above 0, as 3,224,224")
        return tuple(int(side) for side in sides)


_shape = click.option("--shape", type=ShapeType(), help="Of one sample, as 3,224,224, if the file does not say it.")


@click.group()
def caffe() -> None:
    """Show, import and train what Caffe's files describe: NET is a network's prototxt, SOLVER a solver's."""


@caffe.command(short_help="Layers, shapes, parameters, and what is ignored.")
@_net
@_weights
@_shape
@click.option("--phase", type=click.Choice(["train", "test"]), default="test", show_default=True, help="Whose layers.")
@arguments.as_json
@_debug
def show(net: Path, weights: Path | None, shape: tuple[int, ...] | None, phase: str, as_json: bool) -> None:
    """List the layers of NET with shapes and parameters, and each field that changes nothing, with the reason.

    With WEIGHTS, a .caffemodel or .caffemodel.h5, their blobs are compared with the layers'.
    """
    from volary.network.caffe.describing import describe
    from volary.network.caffe.module import inputs_of, with_weights
    from volary.network.caffe.source import read_net

    source = read_net(net)
    inputs = inputs_of(source, shape)
    table = describe(source, inputs, "TRAIN" if phase == "train" else "TEST")
    if weights is not None:
        with_weights(source, inputs, weights)
    if as_json:
        from dataclasses import asdict

        say_json(asdict(table) | {"parameters": table.parameters})
        return
    rows = [
        [one.name, one.type, ", ".join(one.inputs), ", ".join(one.outputs), _sizes(one.shape), f"{one.parameters:,}"]
        for one in table.layers
    ]
    say_table(["layer", "type", "bottom", "top", "shape", "parameters"], rows)
    shapes = ", ".join(f"{name} {_sizes(one)}" for name, one in table.inputs.items())
    say()
    say_pairs(
        [("inputs", shapes), ("outputs", ", ".join(table.outputs)), ("parameters", f"{table.parameters:,}")]
        + ([("weights", f"{weights}: fit")] if weights else [])
    )
    for sentence in table.ignored:
        remark(f"ignored: {sentence}")


@caffe.command("import", short_help="Write a network as a PyTorch module.")
@_net
@_weights
@click.option("--output", "-o", type=click.Path(path_type=Path), required=True, help="The Python file to write.")
@_shape
@_debug
def import_(net: Path, weights: Path | None, output: Path, shape: tuple[int, ...] | None) -> None:
    """Write NET as a readable PyTorch module, and its WEIGHTS beside it, as safetensors. Nothing is overwritten."""
    if output.suffix != ".py":
        raise BadInput(f"--output is {output}; accepted: a file that ends in .py")
    new_file(output, "--output")
    values = new_file(output.with_suffix(".safetensors"), "--output")
    from volary.network.caffe.module import build, inputs_of, with_weights
    from volary.network.caffe.source import read_net
    from volary.network.caffe.writing.python_source import python_source

    source = read_net(net)
    inputs = inputs_of(source, shape)
    module, translation = build(source, inputs) if weights is None else with_weights(source, inputs, weights)
    written = python_source(module, translation.graph, f"{source.name or net.stem}, from {net.name}.")
    output.write_text(written.code, encoding="utf-8")
    say(f"wrote {output}: the class Net")
    if weights is not None:
        from safetensors.torch import save_file

        save_file(written.state(module), values, metadata={"format": "pt"})
        say(f"wrote {values}: its values, for Net().load_state_dict(safetensors.torch.load_file(...))")
    for sentence in source.findings.ignored:
        remark(f"ignored: {sentence}")


@caffe.command(short_help="Train what a solver describes.")
@click.argument("solver", type=click.Path(path_type=Path))
@arguments.overrides
@click.option("--weights", type=click.Path(path_type=Path), help="A .caffemodel to start from.")
@click.option("--snapshot", type=click.Path(path_type=Path), help="A .solverstate to continue from.")
@click.option("--dry-run", is_flag=True, help="Print the session that the solver describes, and start nothing.")
@arguments.quiet
@arguments.as_json
@_debug
def train(
    solver: Path,
    overrides: tuple[str, ...],
    weights: Path | None,
    snapshot: Path | None,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """Train SOLVER as a session, with settings changed as in `strategy.workers=4`.

    Each worker takes the batch that the network's file says, as each device does in Caffe. Under mpirun, srun or
    torchrun each process is a worker of one run. With a snapshot, the weights are those of the caffemodel that it
    names, or WEIGHTS.
    """
    from volary.placement import look

    place = look()
    begun = _snapshot(snapshot, weights, place) if snapshot else None
    session, ignored = _session(solver, overrides, begun or weights, place.world_size if place else None)
    if not quiet and (place is None or place.leads):
        for sentence in ignored:
            remark(f"ignored: {sentence}")
    if dry_run:
        say(session.to_yaml().rstrip())
        return 0
    if place is not None:
        return _work_at(place, session)
    from volary.cli.command.ending import conclude, console
    from volary.driver.start import start

    return conclude(start(session, console(quiet, as_json), _preparation(session, begun)), as_json)


def _snapshot(file: Path, weights: Path | None, place: Place | None) -> SolverSnapshot:
    """The snapshot to continue from. Raises BadInput if a launcher has started this process: each would write one."""
    from volary.network.caffe.solver.snapshot import read_snapshot

    if place is not None:
        raise BadInput(
            f"--snapshot is {file}, in a process that a launcher started; accepted: one process that starts the "
            "workers, with engine=mpi or another, and strategy.workers=N"
        )
    return read_snapshot(file, weights)


def _preparation(session: Session, snapshot: SolverSnapshot | None) -> Callable[[RunDirectory], None]:
    """Return a function that gives a new run its first checkpoint. Raises SettingError if the snapshot does not fit."""
    if snapshot is None:
        return lambda _: None
    from volary.run.checkpoints import Checkpoints
    from volary.train.beginning.from_caffe import first_checkpoint

    first = first_checkpoint(session, snapshot)
    return lambda run: first.write(Checkpoints(run.checkpoints))


def _work_at(place: Place, session: Session) -> int:
    """Be the worker that a launcher started this process as, of a run that all of its processes join."""
    from tempfile import TemporaryDirectory

    from volary.worker import work_at

    with TemporaryDirectory(prefix="volary-caffe-") as folder:
        file = Path(folder) / "session.yaml"  # each process has its own, which says the same
        file.write_text(session.to_yaml(), encoding="utf-8")
        return work_at(place, [str(file)])


def _session(
    solver: Path, overrides: tuple[str, ...], begun: SolverSnapshot | Path | None, processes: int | None
) -> tuple[Session, list[str]]:
    """The session of a solver, and what of it is ignored.

    begun: weights or a snapshot that it begins with. processes: those that a launcher started, if there is one.
    """
    from volary.network.caffe.solver.session import session_settings
    from volary.session import Session
    from volary.session.reading.read import read_from

    given = {one.partition("=")[0] for one in overrides}
    workers = next((one.partition("=")[2] for one in reversed(overrides) if one.startswith("strategy.workers=")), "1")
    if not workers.isdecimal() or workers == "0":
        raise BadInput(f"strategy.workers is {workers!r}; accepted: a whole number, 1 or more")
    found = session_settings(solver, processes or int(workers), given, begun)
    return read_from(Session, found.settings, overrides), found.ignored


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "1"
