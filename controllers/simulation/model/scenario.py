"""The definition of a scenario of the lab: its laws, its settings, and how it runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from common.errors import BadInput
from common.parameter import Parameter, read_values

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ScenarioOutcome:
    """The result of one law: its metrics, and series by name, one value per `series_seconds`."""

    metrics: Mapping[str, float | int | None]
    series: Mapping[str, Floats] = field(default_factory=dict)
    series_seconds: float = 60.0


Run = Callable[[str, Mapping[str, Any], int, Floats | None], ScenarioOutcome]


@dataclass(frozen=True)
class SimulationCost:
    """What the simulation of one law is estimated to use, on a core of 2020."""

    cpu_seconds: float
    memory_bytes: float


@dataclass(frozen=True)
class SimulationSize:
    """How settings make a simulation large: names of the settings, what to do about it, and an estimate."""

    names: tuple[str, ...]
    advice: str
    estimate: Callable[[Mapping[str, Any]], SimulationCost]


@dataclass(frozen=True)
class Scenario:
    """A scenario. `run(law, settings, seed, trace)` runs it; a trace of None means its own arrivals.

    `steers`: law of the lab → law of the plant and the parameters that make it this one. A law without an
    entry represents the plant's law of the same name. `size` is None for a scenario that is small with any settings.
    """

    name: str
    about: str
    laws: Sequence[str]
    settings: Sequence[Parameter]
    metrics: Sequence[str]
    run: Run
    steers: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    size: SimulationSize | None = None

    def read_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return all settings, given or by default. Raise `BadInput` naming the setting."""
        try:
            return read_values(self.settings, settings, "--set")
        except BadInput as error:
            raise BadInput(error.field.replace("--set.", "--set "), error.message) from error

    def read_laws(self, names: Sequence[str]) -> list[str]:
        """Return the requested laws, or all. Raise `BadInput` for a law that the scenario does not have."""
        for name in names:
            if name not in self.laws:
                raise BadInput("--law", f"must be one of {', '.join(self.laws)}, not {name}")
        return list(dict.fromkeys(names)) or list(self.laws)


def create_random_generator(seed: int, *names: str) -> np.random.Generator:
    """Return a random generator for a seed and some names, so that laws don't share one."""
    return np.random.default_rng([seed, *(byte for name in names for byte in name.encode())])
