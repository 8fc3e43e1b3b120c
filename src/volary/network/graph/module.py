"""A graph as a module: layers run in order, and only those that are needed for what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from volary.errors import SettingError
from volary.network.graph.form import PHASES, Graph, NamedLayer, Phase
from volary.network.graph.shapes import infer
from volary.network.graph.wiring import Edge, WiredLayer, wire
from volary.network.layers._base import Shape
from volary.plugins import unknown
from volary.session.reading.problems import Problem, SessionError


class GraphModule(nn.Module):
    """The network that a graph describes; `conv1` has its parameters as `conv1.weight`, `a.b` as `a.b.weight`.

    input_shapes: of each input edge, without the batch. First values are drawn from torch's generator: first all layers
    are made, in their order, as torch makes them, and then fillers fill them, in the same order. Raises SettingError
    for a graph that is none, shapes that do not fit, and names that a module cannot have.
    """

    def __init__(self, graph: Graph, input_shapes: Mapping[str, Shape]) -> None:
        super().__init__()
        self.shapes: dict[Phase, dict[Edge, Shape]] = {}  # of every edge, without the batch
        self._wirings = {phase: wire(graph, phase) for phase in PHASES}
        self._paths: dict[tuple[str, Phase], str] = {}
        self._plans: dict[tuple[object, ...], list[tuple[WiredLayer, str, tuple[Edge, ...]]]] = {}
        made: dict[str, NamedLayer] = {}
        for phase, wiring in self._wirings.items():
            shapes = self.shapes[phase] = infer(wiring, input_shapes)
            for wired in wiring.layers:
                layer = wired.layer
                path = layer.name
                if path in made and made[path].kind != layer.kind:
                    path = f"{path}_{phase}"
                self._paths[layer.name, phase] = path
                if path not in made:
                    made[path] = layer
                    _put(self, path, layer, _built(layer, tuple(shapes[edge] for edge in wired.reads)))
        for path, layer in made.items():
            layer.kind.fill(self.get_submodule(path))
        _share(self, made)

    def forward(self, inputs: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """A tensor (batch, ...) for the input, or a tuple of them for several, to the output, or a tuple of outputs."""
        wiring = self._wirings[self._phase]
        given = inputs if isinstance(inputs, tuple) else (inputs,)  # one argument: torch.fx follows no *inputs
        values = self._run(dict(zip(wiring.inputs, given, strict=True)), wiring.outputs)
        found = tuple(values[edge] for edge in wiring.outputs)
        return found[0] if len(found) == 1 else found

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str]) -> dict[str, Tensor]:
        """Fetch edges by name, given others (batch, ...) by name; what is not needed for that does not run.

        An edge that layers write in place is fetched as the last of them leaves it. Raises SettingError for a name that
        is no edge of the phase that the module is in, and for one that needs an input that is not fed.
        """
        newest = self._wirings[self._phase].newest
        for name in (*feeds, *fetches):
            if name not in newest:
                raise SettingError(f"edge: {unknown(name, sorted(newest))}")
        found = self._run({newest[name]: value for name, value in feeds.items()}, [newest[name] for name in fetches])
        return {name: found[newest[name]] for name in fetches}

    @property
    def edges(self) -> tuple[str, ...]:
        """The names of all edges that can be fetched and fed in the phase that the module is in."""
        return tuple(self._wirings[self._phase].newest)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the edges that the network is fed."""
        return tuple(name for name, _ in self._wirings[self._phase].inputs)

    def layers(self, phase: Phase) -> list[tuple[WiredLayer, str]]:
        """The layers of a phase in the order in which they run, and under which paths their modules are."""
        return [(wired, self._paths[wired.layer.name, phase]) for wired in self._wirings[phase].layers]

    def outputs(self, phase: Phase) -> tuple[Edge, ...]:
        """The edges that the network gives in a phase."""
        return self._wirings[phase].outputs

    @property
    def _phase(self) -> Phase:
        return "train" if self.training else "evaluate"

    def _run(self, values: dict[Edge, Tensor], fetched: Sequence[Edge]) -> dict[Edge, Tensor]:
        for wired, path, done in self._plan(tuple(values), tuple(fetched)):
            given = wired.layer.kind.prepared(*(values[edge] for edge in wired.reads))
            made = self.get_submodule(path)(*given)
            if len(wired.makes) == 1:
                values[wired.makes[0]] = made
            else:
                values.update((edge, made[place]) for place, edge in enumerate(wired.makes))
            for edge in done:
                del values[edge]
        return values

    def _plan(self, fed: tuple[Edge, ...], fetched: tuple[Edge, ...]) -> list[tuple[WiredLayer, str, tuple[Edge, ...]]]:
        """The layers to run, where the module has them, and the edges that nobody needs after each."""
        phase = self._phase
        if (plan := self._plans.get((phase, fed, fetched))) is not None:
            return plan
        needed = self._wirings[phase].needed(fetched, fed)
        known = {*fed, *(edge for wired in needed for edge in wired.makes)}
        for edge in (*fetched, *(edge for wired in needed for edge in wired.reads)):
            if edge not in known:
                raise SettingError(f"edge {edge[0]!r} is an input of the network; feed it")
        kept, plan = set(fetched), []
        for wired in reversed(needed):
            done = {*wired.reads, *wired.makes} - kept
            kept |= done
            plan.append((wired, self._paths[wired.layer.name, phase], tuple(done)))
        plan.reverse()
        self._plans[phase, fed, fetched] = plan
        return plan


def _built(layer: NamedLayer, given: tuple[Shape, ...]) -> nn.Module:
    """The module of a layer for such inputs. Raises SessionError if there is no memory, or no number, of that size."""
    try:
        return layer.kind.build(given)
    except RuntimeError as error:
        sentence = f"cannot be made for inputs {list(map(list, given))}: {str(error).splitlines()[0]}"
        raise SessionError([Problem(layer.place, f"layer {layer.name!r}", sentence)]) from None


def _put(root: nn.Module, path: str, layer: NamedLayer, module: nn.Module) -> None:
    """Add a module under a dotted path. Raises SessionError for a name that torch's modules use for something else."""
    *above, name = path.split(".")
    owner = root
    for part in above:
        if part not in dict(owner.named_children()):
            _add(owner, part, layer, nn.Module())
        owner = owner.get_submodule(part)
        if type(owner) is not nn.Module:  # as which all parts of paths are made
            sentence = f"{part!r} is the name of a layer, and so of no block; accepted: another name"
            raise SessionError([Problem(layer.place, f"layer {layer.name!r}", sentence)])
    _add(owner, name, layer, module)


def _add(owner: nn.Module, name: str, layer: NamedLayer, module: nn.Module) -> None:
    if not name or hasattr(owner, name):
        other = "a block has" if name in dict(owner.named_children()) else "torch's modules have for something else"
        sentence = f"{name!r} is a name that {other}; accepted: another name"
        raise SessionError([Problem(layer.place, f"layer {layer.name!r}", sentence)])
    owner.add_module(name, module)


def _share(root: nn.Module, made: Mapping[str, NamedLayer]) -> None:
    """Make those parameters one that share a name, and those of layers that share theirs."""
    owners: dict[str, tuple[nn.Module, str]] = {}
    first: dict[str, str] = {}
    for path, layer in made.items():
        module = root.get_submodule(path)
        for own, shared in layer.shares.items():
            if own not in dict(module.named_parameters()):
                raise SessionError([Problem(layer.place, f"layer {layer.name!r}", _no_parameter(own, module))])
            _tie(module, own, *owners.setdefault(shared, (module, own)), layer)
        if (origin := first.setdefault(layer.name, path)) != path:
            other = root.get_submodule(origin)
            for own in _blobs(module) & _blobs(other):
                _tie(module, own, other, own, layer)


def _no_parameter(name: str, module: nn.Module) -> str:
    known = ", ".join(dict(module.named_parameters())) or "none"
    return f"has no parameter {name!r} to share; it has: {known}"


def _blobs(module: nn.Module) -> set[str]:
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())}


def _tie(module: nn.Module, name: str, other: nn.Module, of_other: str, layer: NamedLayer) -> None:
    """Let a module use another one's parameter or buffer. Raises SessionError if their shapes differ."""
    if module is other:
        return
    owner, own = _owner(module, name)
    giver, given = _owner(other, of_other)
    mine, theirs = getattr(owner, own), getattr(giver, given)
    if mine.shape != theirs.shape:
        sentence = f"shares {name!r} {tuple(mine.shape)} with one of shape {tuple(theirs.shape)}"
        raise SessionError([Problem(layer.place, f"layer {layer.name!r}", sentence)])
    setattr(owner, own, theirs)


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, own = name.rpartition(".")
    return module.get_submodule(path), own
