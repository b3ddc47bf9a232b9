"""A simulated plant behind the plant interface.

It runs the chain of `controllers.simulation.elastic_chain`, second by second. A change of tasks stops the chain
for `pause_seconds`, like a real rescaling. Simulated time advances when `run` is called; the offered load of each
second is given. Measures are those since the last topology.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

from controllers.baselines.parallelism import MeasuredInterval
from controllers.parallelism.measured_topology import Link, MeasuredOperator, MeasuredTopology
from controllers.simulation.elastic_chain import KINDS, Chain
from workers.plants.plant import PlantUnavailable

SOURCE = "source"
MAX_TASKS = 64


class SimulatedPlant:
    """Runs for at most `seconds`: the chain keeps the arrivals and departures of every second."""

    def __init__(
        self,
        offered: Callable[[int], float],
        seconds: int,
        tasks: Mapping[str, int],
        pause_seconds: int = 20,
        seed: int = 0,
        name: str = "simulated",
    ) -> None:
        """Set up the plant. offered: events that arrive in each second of the simulation."""
        self._chain = Chain(seconds, tasks, seed)
        self._offered, self._pause_seconds, self._name = offered, pause_seconds, name
        self._since = 0

    def run(self, seconds: int) -> None:
        """Advance the time."""
        for _ in range(seconds):
            self._chain.run(self._offered(self._chain.second))

    def get_topology(self) -> MeasuredTopology:
        """Return the topology of the seconds since the last call."""
        chain, window = self._chain, self._chain.second - self._since
        if window == 0:
            raise PlantUnavailable(f"{self._name} has no new measurements since the last observation.")
        then, self._since = self._since, chain.second
        measured = chain.measure()
        chain.measure()
        arrived, failed = chain.arrived[then : chain.second].sum(), chain.failed[then : chain.second].sum()
        left = chain.left[then : chain.second].sum()
        source = MeasuredOperator(
            SOURCE,
            "source",
            1,
            1,
            1,
            "a source, which only supplies events",
            float(failed),
            float(left),
            ({"outputs": float(arrived)},),
        )
        operators = [source, *(_build_operator(operator, window) for operator in measured)]
        waits = [0.0, *(_wait_seconds(operator, window) for operator in measured)]
        links = tuple(
            Link(before.name, after.name, wait)
            for (before, after), wait in zip(pairwise(operators), waits[1:], strict=True)
        )
        named = {operator.name: operator for operator in operators}
        return MeasuredTopology(self._name, float(chain.second), float(window), named, links)

    def hold(self, seconds: float) -> None:
        """Do nothing: the plant has no controllers of its own."""

    def release(self) -> None:
        """Do nothing: nothing is held."""

    def set_parallelism(self, tasks: Mapping[str, int]) -> None:
        """Set the tasks at once; if they differ, the chain stops for its pause."""
        now = {kind.name: count for kind, count in zip(KINDS, self._chain.tasks, strict=True)}
        _build_topology(now).check_tasks(tasks)
        self._chain.rescale({**now, **tasks}, self._pause_seconds)


def _build_topology(tasks: Mapping[str, int]) -> MeasuredTopology:
    source = MeasuredOperator(SOURCE, "source", 1, 1, 1, "a source, which only supplies events")
    operators = {name: MeasuredOperator(name, "operator", count, 1, MAX_TASKS) for name, count in tasks.items()}
    return MeasuredTopology("simulated", 0.0, 1.0, {SOURCE: source, **operators})


def _build_operator(measured: MeasuredInterval, window_seconds: int) -> MeasuredOperator:
    """Return an operator whose tasks are alike: each has its share."""
    tasks = measured.tasks
    offered = measured.rate_per_second * window_seconds / tasks
    task = {
        "latency_seconds": measured.service_seconds,
        "service_seconds": measured.service_seconds,
        "service_variance": measured.service_seconds**2,
        "arrival_interval_seconds": window_seconds / offered if offered else None,
        "arrival_interval_variance": (window_seconds / offered) ** 2 if offered else None,
        "utilisation": min(1.0, offered * measured.service_seconds / window_seconds),
        "inputs": offered,
        "executions": measured.executed_events / tasks,
        "outputs": measured.emitted_events / tasks,
    }
    return MeasuredOperator(measured.name, "operator", tasks, 1, MAX_TASKS, tasks=(task,) * tasks)


def _wait_seconds(measured: MeasuredInterval, window_seconds: int) -> float | None:
    """Return the waiting time by Little's law: backlog divided by departures per second."""
    leaves = measured.executed_events / window_seconds
    return measured.backlog_events / leaves if leaves else None
