"""The lab's scenario `flow`: a result queue of 500 MB whose free space should be 400 MB (Xu, section 4).

The run takes half an hour, in samples of 2 s. The offered load is 150 % of the capacity of the stage behind the queue;
events that aren't admitted wait before the queue. With Q the contents of the queue in bytes,

    Q(k+1) = 0.985·Q(k) + 134,000·gain·(admitted(k - delay) - served(k))

within 0 and its capacity; free space is capacity - Q, and events beyond the capacity are dropped. That is the paper's
model, with a = 0.985 and b = -134 kB per event.

| samples | event |
|---|---|
| 20 | the setpoint falls from 420 to 400 MB |
| 100 | with `gain_factor`, an event's results permanently become larger by this factor |
| 250-399 | a CPU hog: serving an event takes 1 + `hog` times as long (1: twice; 0: no hog) |
| 500 | `starvation`: for this many samples nothing can be read, then the waiting events arrive at once |

With `replicas`, each replica has its own result queue, controller, and input, as in the paper. All replicas are offered
the same load, and the hog is on the first one only.

Laws: `pi` and `i-p` with the gains of ERRATA E1 (without delay) or E5 (poles 0.55, 0.45, 0.3, with one); `adaptive` is
i-p that adapts to the plant; `spark-pid` is Spark's rate estimator; `uncontrolled` admits everything.

Metrics: samples from the start of the hog (without a hog: from the new setpoint) until the free space stays within 5 %
of its reference, as far as the next event; overshoot of the new setpoint, as a share of the step; the minimum free
space; events dropped; the root mean square of the distance from the reference in MB. In addition to the contract: the
served events as a share of the possible ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from common.parameter import Parameter
from controllers.baselines.flow import SparkPid
from controllers.design import placement
from controllers.design.placement import Model
from controllers.flow.admission import Flow, FlowObservation, FlowParameters, limit_of
from controllers.simulation.scenario import (
    Floats,
    Scenario,
    ScenarioOutcome,
    add_noise,
    create_random_generator,
    resample,
)

SAMPLES, SAMPLE_SECONDS = 900, 2.0
CAPACITY_KB, REFERENCE_KB, FIRST_REFERENCE_KB = 500_000.0, 400_000.0, 420_000.0
A, KB_PER_EVENT = 0.985, 134.0
SERVED_PER_SAMPLE, OFFERED_SHARE = 400.0, 1.5
STEP_AT, GAIN_AT, HOG_FROM, HOG_UNTIL, STARVED_FROM = 20, 100, 250, 400, 500
SETTLED_WITHIN = 0.05
POLES: Mapping[int, Sequence[complex]] = {0: [complex(0.046, 0.4), complex(0.046, -0.4)], 1: [0.55, 0.45, 0.3]}
SETTINGS = (
    Parameter("delay", "samples", "Number of samples until an admission takes effect.", 0, 0, 1, "integer"),
    Parameter(
        "hog", "service times", "Extra processing time per event during the CPU hog; 1 doubles the time.", 1.0, 0.0, 9.0
    ),
    Parameter("gain_factor", "factor", "Factor by which the results of an event grow.", 1.0, 0.1, 10.0),
    Parameter("starvation", "samples", "Number of samples without readable events.", 0, 0, 300, "integer"),
    Parameter("noise", "share", "Standard deviation of the events served per sample.", 0.01, 0.0, 0.5),
    Parameter(
        "designed_delay",
        "samples",
        "Delay that the gains are designed for; -1: that of the plant.",
        -1,
        -1,
        1,
        "integer",
    ),
    Parameter("replicas", "replicas", "Number of replicas, each with its own result queue.", 1, 1, 16, "integer"),
    Parameter("ramp", "0 or 1", "1: the offered load rises from zero to twice the capacity.", 0, 0, 1, "integer"),
)


class ShippedFlow:
    """The shipped law in one of its forms, with its state."""

    def __init__(self, form: str, tuning: Literal["fixed", "adaptive"], delay: int) -> None:
        gains = placement.place(Model(A, -KB_PER_EVENT, delay), POLES[delay])
        self.law = Flow()
        self.parameters = FlowParameters(
            kp=gains.kp,
            ki=gains.ki,
            kd=gains.kd,
            form=form,
            tuning=tuning,
            a=A,
            b=-KB_PER_EVENT,
            delay=delay,
            maximum=10 * SERVED_PER_SAMPLE,
        )
        self.state = self.law.start(self.parameters)

    def admit(self, free_kb: float, setpoint_kb: float, applied: float) -> float:
        observation = FlowObservation(measured=free_kb, applied=applied)
        parameters = replace(self.parameters, setpoint=setpoint_kb)
        self.state, decision = self.law.decide(parameters, self.state, observation)
        return limit_of(decision)


@dataclass
class SparksLaw:
    """Spark's estimator: a batch's events are processed when the stage has served them."""

    pid: SparkPid = field(default_factory=lambda: SparkPid(SAMPLE_SECONDS))

    def admit(self, served: float, busy_seconds: float, waiting: float) -> float:
        """Return the events to admit, unlimited before the first batch; `waiting` events are in the queue."""
        # Events that the stage can't serve in the next sample wait.
        if served > 0:
            late_seconds = max(0.0, waiting * (busy_seconds / served) - SAMPLE_SECONDS)
            self.pid = self.pid.update(served, busy_seconds, late_seconds)
        rate = self.pid.rate_per_second
        return math.inf if rate is None else rate * SAMPLE_SECONDS


@dataclass(frozen=True)
class Disturbances:
    """The disturbances, sample by sample, in events per sample."""

    offered: Floats
    starved: npt.NDArray[np.bool_]  # nothing can be read, not even waiting events
    capable: Floats  # events that the stage can serve
    gain: Floats
    setpoint_kb: Floats


def build_course(settings: Mapping[str, Any], seed: int, trace: Floats | None, replica: int = 0) -> Disturbances:
    """Return the disturbances of a replica; the same for all laws of a seed."""
    at = np.arange(SAMPLES)
    shape = np.ones(SAMPLES) if trace is None else resample(trace, SAMPLES)
    if settings["ramp"]:
        shape = np.linspace(0.0, 2 / OFFERED_SHARE, SAMPLES)
    offered = OFFERED_SHARE * SERVED_PER_SAMPLE * shape
    hogged = (at >= HOG_FROM) & (at < HOG_UNTIL) & (replica == 0)
    stream = f"served {replica}" if replica else "served"
    capable = SERVED_PER_SAMPLE / np.where(hogged, 1 + settings["hog"], 1.0)
    return Disturbances(
        offered,
        (at >= STARVED_FROM) & (at < STARVED_FROM + settings["starvation"]),
        add_noise(capable, settings["noise"], create_random_generator(seed, stream)),
        np.where(at >= GAIN_AT, settings["gain_factor"], 1.0),
        np.where(at >= STEP_AT, REFERENCE_KB, FIRST_REFERENCE_KB),
    )


def simulate(
    who: ShippedFlow | SparksLaw | None, course: Disturbances, delay: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the free space (kB), and the events admitted, served, and dropped, sample by sample.

    Every sample is decided on the free space at its start; the plant is at rest before the first. Without a law,
    everything is admitted.
    """
    free, admitted, all_served, all_dropped = (np.zeros(SAMPLES) for _ in range(4))
    held, source = CAPACITY_KB - FIRST_REFERENCE_KB, 0.0
    # What keeps the first setpoint at rest: what is served, and what leaks.
    late = SERVED_PER_SAMPLE + (1 - A) * (CAPACITY_KB - FIRST_REFERENCE_KB) / KB_PER_EVENT
    served, busy_seconds, applied = SERVED_PER_SAMPLE, SAMPLE_SECONDS, late
    for k in range(SAMPLES):
        source += course.offered[k]
        size, available = KB_PER_EVENT * course.gain[k], 0.0 if course.starved[k] else source
        free[k], wanted = CAPACITY_KB - held, math.inf
        if isinstance(who, ShippedFlow):
            wanted = who.admit(CAPACITY_KB - held, course.setpoint_kb[k], applied)
        elif who is not None:
            wanted = who.admit(served, busy_seconds, held / size)
        applied = min(max(0.0, wanted), available)
        source -= applied
        arriving, late = (late, applied) if delay else (applied, late)
        contents = A * held + size * (arriving - course.capable[k])
        served = max(0.0, course.capable[k] - max(0.0, -contents) / size)
        all_dropped[k] = max(0.0, contents - CAPACITY_KB) / size
        held = min(max(contents, 0.0), CAPACITY_KB)
        busy_seconds = SAMPLE_SECONDS * served / course.capable[k] if course.capable[k] else 0.0
        admitted[k], all_served[k] = applied, served
    return free, admitted, all_served, all_dropped


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    """Run one law for half an hour.

    The outcome is that of the first replica, but drops, minimum, and served share are those of all replicas.
    """
    courses = [build_course(settings, seed, trace, replica) for replica in range(int(settings["replicas"]))]
    outcomes = [_run_replica(law, settings, course) for course in courses]
    capable = np.array([course.capable.sum() for course in courses])
    served = np.array([outcome.metrics["served_share"] for outcome in outcomes])
    together = {
        "minimum_free_mb": min(outcome.metrics["minimum_free_mb"] or 0.0 for outcome in outcomes),
        "drops": sum(outcome.metrics["drops"] or 0.0 for outcome in outcomes),
        "served_share": round(float(served @ capable / capable.sum()), 4),
    }
    return ScenarioOutcome({**outcomes[0].metrics, **together}, outcomes[0].series, SAMPLE_SECONDS)


def _run_replica(law: str, settings: Mapping[str, Any], course: Disturbances) -> ScenarioOutcome:
    delay = int(settings["delay"])
    who: ShippedFlow | SparksLaw | None = SparksLaw() if law == "spark-pid" else None
    if law in ("pi", "i-p", "adaptive"):
        known = delay if settings["designed_delay"] < 0 else int(settings["designed_delay"])
        who = ShippedFlow("i-p", "adaptive", known) if law == "adaptive" else ShippedFlow(law, "fixed", known)
    return summarize(settings, course, *simulate(who, course, delay))


def summarize(
    settings: Mapping[str, Any],
    course: Disturbances,
    free_kb: Floats,
    admitted: Floats,
    served: Floats,
    dropped: Floats,
) -> ScenarioOutcome:
    """Return the metrics and series of a run, from the values of each sample."""
    free_mb, reference_mb = free_kb / 1000, course.setpoint_kb / 1000
    # The samples until the free space stays near its reference, and how far it fell below the new setpoint.
    begin, end = (HOG_FROM, HOG_UNTIL) if settings["hog"] > 0 else (STEP_AT, GAIN_AT)
    apart = np.abs(free_mb - reference_mb)[begin:end] > SETTLED_WITHIN * REFERENCE_KB / 1000
    last = int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0
    step = (FIRST_REFERENCE_KB - REFERENCE_KB) / 1000
    overshoot = max(0.0, (REFERENCE_KB / 1000 - float(free_mb[STEP_AT:GAIN_AT].min())) / step)
    metrics = {
        "settling_samples": None if last == end - begin else last,
        "overshoot": round(overshoot, 4),
        "minimum_free_mb": round(float(free_mb.min()), 2),
        "drops": round(float(dropped.sum()), 3),
        "rms": round(math.sqrt(float(((free_mb - reference_mb)[GAIN_AT:] ** 2).mean())), 3),
        "served_share": round(float(served.sum() / course.capable.sum()), 4),
    }
    series = {
        "free_mb": free_mb,
        "reference_mb": reference_mb,
        "admitted_events": admitted,
        "served_events": served,
        "dropped_events": dropped,
    }
    return ScenarioOutcome(metrics, series, SAMPLE_SECONDS)


SCENARIO = Scenario(
    "flow",
    "Free space of a result queue during a CPU hog and a change of the plant (Xu et al., section 4).",
    ("i-p", "pi", "adaptive", "spark-pid", "uncontrolled"),
    SETTINGS,
    ("settling_samples", "overshoot", "minimum_free_mb", "drops", "rms"),
    run,
)
