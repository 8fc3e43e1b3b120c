"""The average of a model's weights that servers keep for a loop of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from volary.errors import SettingError
from volary.naming import named_buffers, named_parameters
from volary.train.agreement.lent import lent

if TYPE_CHECKING:
    from torch import Tensor, nn

    from volary.train.own.served.steps import ServedSteps


class ServedAverage:
    """See `WeightAverage`. Of one of the models that servers keep. steps: of the loop, from the first batch on.

    It is asked for whenever it is used: as of all updates where each is of all workers, else as of the newest.
    """

    def __init__(self, model: nn.Module, steps: Callable[[], ServedSteps]) -> None:
        self._model, self._steps = model, steps

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Lend the model its average, and the buffers that servers have. Raises SettingError within itself or a step.

        Raises BadInput before the first batch.
        """
        own = {**dict(named_parameters(self._model)), **dict(named_buffers(self._model))}
        with self._steps().averages() as found:
            averages = {id(tensor): average for tensor, average in found}
            values = {name: averages[id(one)] for name, one in own.items() if id(one) in averages}
            with lent(own, values):
                yield

    def state_dict(self) -> dict[str, Tensor]:
        """The averages by the names of their parameters. Raises as `applied`."""
        with self._steps().averages() as found:
            averages = {id(tensor): average for tensor, average in found}
        named = named_parameters(self._model)
        return {name: averages[id(one)] for name, one in named if id(one) in averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        """Raise SettingError: servers go on from the checkpoint's."""
        raise SettingError(
            "average.load_state_dict: servers keep the average; accepted with exchange=server: "
            "worker.restore(average=average), in a run that is resumed"
        )
