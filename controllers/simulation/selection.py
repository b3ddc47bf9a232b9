"""The lab's scenario `selection`: when a TOOBUSY node moves the container that causes its load (Houtman, Table 4.1).

Of `containers` containers on the node, one carries nearly all of the load. Each attempt of a law chooses anew among
them. The metric is the share of `trials` in which that container was chosen in at most `attempts` attempts. The
thesis' nodes choose at random, since they don't know the cause; Weir's law knows the rates of queues.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.baselines.rebalancing import Thesis
from controllers.rebalancing.allocation import Allocation
from controllers.simulation import queues
from controllers.simulation.scenario import Floats, Scenario, ScenarioOutcome, create_random_generator
from queues.points import TOTAL

SETTINGS = (
    Parameter("attempts", "attempts", "Number of attempts to choose the container.", 1, 1, 100, "integer"),
    Parameter("containers", "containers", "Containers on the TOOBUSY node.", 20, 2, 200, "integer"),
    Parameter("trials", "trials", "Number of independent trials.", 500, 1, 10_000, "integer"),
)


def build_hot_node(containers: int) -> Allocation:
    """Return three nodes; the first is TOOBUSY because of the first queue, and the others hold the other halves."""
    none = np.zeros(3, dtype=bool)
    rates = np.full(containers, 1.0)
    rates[0] = 2 * queues.TOOBUSY
    return queues.mark_idle_nodes(
        Allocation(
            nodes=("n1", "n2", "n3"),
            capacity=np.array([1.0, 1.8, 0.2]),
            drained=none,
            offline=none,
            idle=none,
            queues=tuple(f"q{index + 1}" for index in range(containers)),
            rate=rates,
            minimum=(2,) * containers,
            points=tuple({0: TOTAL // 2, 1 + index % 2: TOTAL // 2} for index in range(containers)),
        )
    )


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    plant, chance, hits = build_hot_node(int(settings["containers"])), create_random_generator(seed, law), 0
    for _ in range(int(settings["trials"])):
        who: queues.Balancer = queues.OurLaws(queues.BUSY, queues.TOOBUSY)
        if law in queues.THESIS_SHARES:
            who = Thesis(queues.THESIS_SHARES[law], queues.BUSY, queues.TOOBUSY, queues.MINIMUM_POINTS)
        for _ in range(int(settings["attempts"])):
            balance, _ = who.decide(plant, chance)
            if any(move.queue == 0 and move.source == 0 for move in balance):
                hits += 1
                break
        if law not in queues.THESIS_SHARES:  # The law is not random.
            hits *= int(settings["trials"])
            break
    return ScenarioOutcome({"chance": hits / int(settings["trials"])}, {}, 1.0)


SCENARIO = Scenario(
    "selection",
    "The chance that a TOOBUSY node moves the container that causes its load (thesis, Table 4.1).",
    ("rebalancing", *queues.THESIS_SHARES),
    SETTINGS,
    ("chance",),
    run,
)
