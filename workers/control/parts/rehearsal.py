"""What a kind of loop needs to be tuned on its record: the recorded load and a model of its cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from controllers.framework.law import Values

Floats = npt.NDArray[np.float64]
Seconds = npt.NDArray[np.bool_]
# Time (s since 1970) and observation.
Observed = tuple[float, Mapping[str, Any]]


class WorkedLoad(Protocol):
    """The result of a load: runs of workers, and seconds in which the oldest event waited too long."""

    @property
    def runs(self) -> float: ...
    @property
    def late_seconds(self) -> float: ...


@dataclass(frozen=True)
class TuningModel:
    """A loop's recorded load, processed again by its law on a plant model that responds to the decisions.

    tuned: the parameters that are searched; requirements of people (limits, deadlines) are not among them.
    load: from observations in order of time, the arrivals: a row for each second or each sample. Empty where the
    observations have none.
    cost: from all parameters and some parts of the load, a number without a unit; less is better.
    """

    tuned: tuple[str, ...]
    load: Callable[[Sequence[Observed]], Floats]
    cost: Callable[[Values, Sequence[Floats]], float]


@dataclass(frozen=True)
class LoadReplay:
    """A loop's recorded load processed by its baselines (`workers.control.costs`).

    load: as in a `TuningModel`, a row for each second. worked: the result for the law (under its name) or a baseline,
    with the seconds without decisions, if any. baselines: descriptions by name. reads: fields that an observation must
    have; older versions recorded fewer.
    """

    reads: frozenset[str]
    load: Callable[[Sequence[Observed]], Floats]
    worked: Callable[[Values, Floats, str, Seconds | None], WorkedLoad]
    baselines: Mapping[str, str]
