"""What a kind of loop needs to be tuned on its record: its load as it was, and a model of what that costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from controllers.framework.law import Values

Floats = npt.NDArray[np.float64]
Seconds = npt.NDArray[np.bool_]
# When (s since 1970), and what was observed.
Observed = tuple[float, Mapping[str, Any]]


class WorkedLoad(Protocol):
    """What a load came to: runs of workers, and seconds in which the oldest event waited too long."""

    @property
    def runs(self) -> float: ...
    @property
    def late_seconds(self) -> float: ...


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


@dataclass(frozen=True)
class LoadReplay:
    """A loop's recorded load beside its rivals (`workers.control.costs`).

    load: as a `Rehearsal` has it, a row each second. worked: it, by the law (under its name) or by a rival,
    with the seconds in which nobody decides, if any. rivals: by name, in words. reads: what an observation
    must have for it; older versions recorded less.
    """

    reads: frozenset[str]
    load: Callable[[Sequence[Observed]], Floats]
    worked: Callable[[Values, Floats, str, Seconds | None], WorkedLoad]
    rivals: Mapping[str, str]
