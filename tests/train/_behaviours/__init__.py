"""Uses of a model that is distributed: one small loop each, which returns its result.

On several workers each comes to what it comes to on one. `REFUSED` are those that end in a sentence instead.
"""

from __future__ import annotations

from train._behaviours import changed_models, copied_models, gradients, odd_models, optimizers, refused, several_models
from train._behaviours._learning import Loop

EQUAL: list[Loop] = [
    *several_models.EQUAL,
    *optimizers.EQUAL,
    *changed_models.EQUAL,
    *gradients.EQUAL,
    *odd_models.EQUAL,
    *copied_models.EQUAL,
]
REFUSED = refused.REFUSED
LOOPS = {loop.__name__: loop for loop in (*EQUAL, *copied_models.COMPILED, *REFUSED)}
