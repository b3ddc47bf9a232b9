"""What a kind of loop needs to be tuned on its record: its load as it was, and a model of what that costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from controllers.framework.law import Values

Floats = npt.NDArray[np.float64]
# When (s since 1970), and what was observed.
Observed = tuple[float, Mapping[str, Any]]


@dataclass(frozen=True)
class Rehearsal:
    """A loop's recorded load, worked once more by its law on a model of the plant that answers to it.

    tuned: the parameters that are searched; what people want (limits, deadlines) is not among them.
    load: of what was observed, in order of time, what came: a row each second, or each sample. Empty where it
    says nothing.
    cost: of all parameters and some stretches of load, without a unit; less is better.
    """

    tuned: tuple[str, ...]
    load: Callable[[Sequence[Observed]], Floats]
    cost: Callable[[Values, Sequence[Floats]], float]
