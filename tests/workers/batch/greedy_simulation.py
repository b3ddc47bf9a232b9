"""`python -m tests.workers.batch.greedy_simulation`: the lab's process, with scenarios that take too much."""

import numpy as np

from controllers.simulation.scenario import ScenarioOutcome
from workers.twin import simulation


class _Greedy:
    """Stands for a scenario; its law says what it takes."""

    @staticmethod
    def run(law, settings, seed, trace) -> ScenarioOutcome:
        if law == "memory":
            return ScenarioOutcome({"bytes": int(np.ones(2**28).nbytes)})  # 2 GiB
        while law == "cpu":
            pass
        return ScenarioOutcome({"bytes": 0})


if __name__ == "__main__":
    simulation.SCENARIOS = {"crash": _Greedy()}
    simulation.main()
