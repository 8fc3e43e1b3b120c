"""Names in a network as its code has them: without `_orig_mod` of what is compiled, and `module` of DataParallel.

So a network is saved, resumed and given its codecs under the same names, however it is wrapped.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

_COMPILED = "_orig_mod"


def named_modules(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Name modules as torch does; a wrapper has the name of what is in it, and comes before it."""
    plain = plain_names(module)
    return ((plain(name), part) for name, part in module.named_modules())


def named_parameters(module: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
    """As torch's, in the same order."""
    plain = plain_names(module)
    return ((plain(name), one) for name, one in module.named_parameters(remove_duplicate=remove_duplicate))


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name, in the same order."""
    return {name: one for name, one in named_parameters(module) if one.requires_grad}


def named_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """As torch's, in the same order."""
    plain = plain_names(module)
    return ((plain(name), one) for name, one in module.named_buffers())


def plain_names(module: nn.Module) -> Callable[[str], str]:
    """Turns names that torch has for what is in `module` into those without wrappers."""
    every = module.named_modules(remove_duplicate=False)
    wrappers = {f"{name}.{inner}".lstrip(".") for name, part in every if (inner := _inner(part))}

    def plain(name: str) -> str:
        path = name.split(".") if wrappers else []
        kept = [piece for place, piece in enumerate(path, 1) if ".".join(path[:place]) not in wrappers]
        return ".".join(kept) if wrappers else name

    return plain


def unwrapped(module: Any) -> Any:
    """The module that is wrapped in it, or itself."""
    while inner := _inner(module):
        module = getattr(module, inner)
    return module


def is_compiled(module: nn.Module) -> bool:
    """Whether `torch.compile` made it: a wrapper that runs compiled code in place of what is in it."""
    return _COMPILED in module._modules


def loadable(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """A `state_dict()` of the same network, however that was wrapped, as `module.load_state_dict` takes it."""
    plain = plain_names(module)
    wrapped = {plain(name): name for name in module.state_dict()}
    return {wrapped.get(without_compiled(name), name): value for name, value in state.items()}


def without_compiled(name: str) -> str:
    """A name of which only the text is known: that of a compiled network in a checkpoint of an earlier version."""
    return ".".join(piece for piece in name.split(".") if piece != _COMPILED)


def fits(name: str, pattern: str) -> bool:
    """Whether a name of a parameter or buffer fits a pattern: of names, or of a layer that it is in."""
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def _inner(module: Any) -> str:
    """The name of the attribute in which a wrapper has its network; empty for any other module."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    if isinstance(module, DataParallel | DistributedDataParallel):
        return "module"
    return _COMPILED if _COMPILED in getattr(module, "_modules", ()) else ""
