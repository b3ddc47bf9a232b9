"""The lab's scenario `balance`: N replicas share the load before the combiner (Xu, sections 3.2 and 4).

The run takes twenty minutes, second by second. Each replica starts a batch every second. With A the events of a second,
s the replica's share, m the events it can process in a second, and q its remaining events,

    response = 0.5 + overhead + (q + s·A) / m          q ← max(0, q + s·A - m)

which is half a second until a batch starts, the fixed part, and the processing. The combiner waits for the slowest
replica (3.2): an event's delay is the greatest response time. The load is 60 % of the capacity of all replicas. After a
third of the time, a CPU hog on the first replica makes an event take 1 + `hog` times as long (1: twice; 0: no hog).

With `delay`, new shares take effect so many seconds later.

Laws: `lqr` is the shipped law, given response times and shares, with the initial models of the replicas and the delay;
`undelayed` is its regulator for fast correction and without delay (Xu's Figure 9: on a plant with a delay, it
oscillates); `round-robin` gives all replicas the same share; `shortest-queue` gives each event to the queue with the
fewest events at that instant.

Metrics: the events' mean and greatest delay; the mean over time of the slowest minus the fastest response. In addition
to the contract: the mean delay of the same law without the hog, and the ratio to it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.parameter import Parameter
from controllers.baselines.flow import join
from controllers.flow.balance import MAX_DELAY, Balance, BalanceObservation, BalanceParameters
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    add_noise,
    create_random_generator,
    resample,
)

SECONDS, HOG_FROM = 1_200, 400
PER_REPLICA, LOAD = 1_000.0, 0.6
BATCH_SECONDS, OVERHEAD_SECONDS = 1.0, 0.5
SETTINGS = (
    Parameter("replicas", "replicas", "Number of replicas that share the load.", 2, 2, 200, "integer"),
    Parameter(
        "hog", "service times", "Extra processing time per event during the CPU hog; 1 doubles the time.", 1.0, 0.0, 9.0
    ),
    Parameter("unequal", "factor", "Speed of the fastest replica over that of the slowest.", 1.0, 1.0, 10.0),
    Parameter("noise", "share", "Standard deviation of the arrivals, and of each replica's speed.", 0.05, 0.0, 0.5),
    Parameter("delay", "s", "Time until new shares take effect.", 0, 0, MAX_DELAY, "integer"),
)


class ShippedBalance:
    """The law with the models of the replicas, and the shares that it sets.

    a, weight: of the model, and r relative to the square of b.
    """

    def __init__(self, speeds: Floats, rate: float, delay: int, a: float = 0.5, weight: float = 4.0) -> None:
        self.names = [f"r{index + 1:03d}" for index in range(len(speeds))]
        self.law, self.shares = Balance(), np.full(len(speeds), 1.0 / len(speeds))
        models = dict(zip(self.names, (rate * BATCH_SECONDS / speeds).tolist(), strict=True))
        # A share's effect, in seconds per unit of share; equal replicas need no table.
        alike: dict[str, Any] = {"b": next(iter(models.values()))} if np.ptp(speeds) == 0 else {"b_of": models}
        self.parameters = BalanceParameters(
            minimum_share=0.2 / len(speeds),
            r=weight * float(np.mean(list(models.values()))) ** 2,
            a=a,
            delay=delay,
            averaging=1,
            tuning="fixed",
            **alike,
        )
        self.state = self.law.start(self.parameters)

    def note(self, response: Floats) -> None:
        observation = BalanceObservation(
            response_times_seconds=dict(zip(self.names, response.tolist(), strict=True)),
            shares=dict(zip(self.names, self.shares.tolist(), strict=True)),
        )
        self.state, decision = self.law.decide(self.parameters, self.state, observation)
        shares = (decision.action or {})["shares"]
        self.shares = np.array([shares[name] for name in self.names])


def compute_speeds(settings: Mapping[str, Any]) -> Floats:
    spread = np.linspace(1.0, settings["unequal"], int(settings["replicas"]))
    return np.asarray(PER_REPLICA * spread / spread.mean())


def generate_arrivals(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> Floats:
    """Return the events of each second; the same for all laws of a seed."""
    shape = np.ones(SECONDS) if trace is None else resample(trace, SECONDS)
    rate = LOAD * PER_REPLICA * settings["replicas"]
    return add_noise(rate * shape, settings["noise"], create_random_generator(seed, "arrivals"))


def generate_capacities(settings: Mapping[str, Any], seed: int) -> Floats:
    """Return the events that each replica can process in each second; the same for all laws of a seed."""
    steady = np.tile(compute_speeds(settings), (SECONDS, 1))
    steady[HOG_FROM:, 0] /= 1 + settings["hog"]
    # A second without any progress would be an infinite response time.
    return np.maximum(add_noise(steady, settings["noise"], create_random_generator(seed, "speeds")), 0.1 * steady)


class SimulatedReplicas:
    """The replicas' queues."""

    def __init__(self, count: int) -> None:
        self.waiting = np.zeros(count)

    def process(self, received: Floats, capacities: Floats) -> Floats:
        """Process one second and return the response times of its events; capacities: events of a second."""
        self.waiting = self.waiting + received
        responses = BATCH_SECONDS / 2 + OVERHEAD_SECONDS + self.waiting / capacities
        self.waiting = np.maximum(0.0, self.waiting - capacities * BATCH_SECONDS)
        return np.asarray(responses)


def simulate(law: str, settings: Mapping[str, Any], events: Floats, done: Floats) -> tuple[Floats, Floats]:
    """Return (response seconds, events received) per second and replica; `done` is each one's capacity."""
    speeds = compute_speeds(settings)
    rate, delay = LOAD * float(speeds.sum()), int(settings["delay"])
    ours = {
        "lqr": lambda: ShippedBalance(speeds, rate, delay),
        "undelayed": lambda: ShippedBalance(speeds, rate, 0, a=0.0, weight=0.01),
    }.get(law, lambda: None)()
    ordered = [np.full(len(speeds), 1.0 / len(speeds))] * delay  # shares that have not taken effect, oldest first
    responses, received = np.zeros((SECONDS, len(speeds))), np.zeros((SECONDS, len(speeds)))
    replicas = SimulatedReplicas(len(speeds))
    for second, arriving in enumerate(events.tolist()):
        if ours is not None:
            ordered.append(ours.shares)
            received[second] = ordered.pop(0) * arriving
        elif law == "shortest-queue":
            received[second] = join(replicas.waiting, arriving)
        else:
            received[second] = arriving / len(speeds)
        responses[second] = replicas.process(received[second], done[second])
        if ours is not None:
            ours.note(responses[second])
    return responses, received


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law for twenty minutes, with and without the hog."""
    events = generate_arrivals(settings, seed, trace)
    responses, received = simulate(law, settings, events, generate_capacities(settings, seed))
    calm, _ = simulate(law, settings, events, generate_capacities({**settings, "hog": 0.0}, seed))
    return summarize(events, responses, received, calm)


def summarize(events: Floats, responses: Floats, received: Floats, calm: Floats) -> ScenarioOutcome:
    """Return the metrics and series of a run; calm: the response times without the hog."""
    # Each event waits for the slowest replica of its second.
    delay, undisturbed = (
        float((replica_seconds.max(axis=1) * events).sum() / events.sum()) for replica_seconds in (responses, calm)
    )
    metrics = {
        "delay_mean_seconds": round(delay, 4),
        "delay_max_seconds": round(float(responses.max()), 4),
        "spread": round(float(np.ptp(responses, axis=1).mean()), 4),
        "undisturbed_mean_seconds": round(undisturbed, 4),
        "ratio": round(delay / undisturbed, 4),
    }
    return ScenarioOutcome(
        metrics,
        {
            "arrivals_per_second": events,
            "delay_seconds": responses.max(axis=1),
            "quickest_seconds": responses.min(axis=1),
            "first_replica_seconds": responses[:, 0],
            "first_replica_share": received[:, 0] / np.maximum(received.sum(axis=1), 1e-9),
        },
        1.0,
    )


SCENARIO = Scenario(
    "balance",
    "Replicas before the combiner, one of them with a CPU hog (sections 3.2 and 4).",
    ("lqr", "undelayed", "round-robin", "shortest-queue"),
    SETTINGS,
    ("delay_mean_seconds", "delay_max_seconds", "spread"),
    run,
)
