"""Looks for what makes a loss another one each time, where an optimiser compares gradients of the same one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from volary.errors import SettingError
from volary.naming import named_modules
from volary.network.operations.sync_norm import has_batch_norm
from volary.session.fitting.needs import OPTIMIZER

if TYPE_CHECKING:
    from volary.session.spec import Session


def refuse_uncertain_loss(session: Session, module: nn.Module, samples: int) -> None:
    """Raise SettingError if the loss is no function of the parameters, which the session's optimiser takes it for.

    That is: if it is random, if that of a batch is not the sum of its portions', or if two in a row are of different
    samples and compared. samples: of the training part.
    """
    name = OPTIMIZER.name_of(type(session.optimizer))
    if session.optimizer.line_search != "none" and session.data.batch_size < samples:
        raise SettingError(
            f"optimizer.line_search is {session.optimizer.line_search}, which compares losses of the same samples, and "
            f"data.batch_size={session.data.batch_size} is less than the {samples} samples of the training part; "
            f"accepted: batch_size={samples} or more, or line_search=none"
        )
    for layer, one in named_modules(module):
        if _drops(one):
            raise SettingError(
                f"optimizer is {name}, which compares gradients of the same loss, and layer {layer} "
                f"({type(one).__name__}) draws what it drops anew each time; accepted: a rate of 0, or optimizer=sgd"
            )
    if "versions" not in session.strategy.exchange.lacks and has_batch_norm(module):
        raise SettingError(
            f"optimizer is {name}, which goes by the loss of a whole batch, and batch norms normalise each portion of "
            "it by itself; accepted: a network without them, as with layer norms, or optimizer=sgd"
        )


def _drops(one: nn.Module) -> bool:
    if isinstance(one, _DropoutNd):
        return one.p > 0
    rate: Any = getattr(one, "dropout", 0.0)
    return isinstance(one, nn.RReLU) or (isinstance(rate, float) and rate > 0)
