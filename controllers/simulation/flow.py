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
from typing import Any, Literal, Protocol

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
)


@dataclass(frozen=True)
class SeenSample:
    """The input of a law before each sample. Events are those of the previous sample."""

    free_kb: float
    setpoint_kb: float
    applied: float
    served: float
    busy_seconds: float  # of the stage, in that sample
    waiting: float  # events in the queue
    available: float


class FlowRegulator(Protocol):
    def admit(self, seen: SeenSample) -> float: ...


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

    def admit(self, seen: SeenSample) -> float:
        observation = FlowObservation(measured=seen.free_kb, applied=seen.applied)
        parameters = replace(self.parameters, setpoint=seen.setpoint_kb)
        self.state, decision = self.law.decide(parameters, self.state, observation)
        return limit_of(decision)


@dataclass
class SparksLaw:
    """Spark's estimator: a batch's events are processed when the stage has served them."""

    pid: SparkPid = field(default_factory=lambda: SparkPid(SAMPLE_SECONDS))

    def admit(self, seen: SeenSample) -> float:
        # Events that the stage can't serve in the next sample wait.
        if seen.served > 0:
            per_event_seconds = seen.busy_seconds / seen.served
            late_seconds = max(0.0, seen.waiting * per_event_seconds - SAMPLE_SECONDS)
            self.pid = self.pid.update(seen.served, seen.busy_seconds, late_seconds)
        rate = self.pid.rate_per_second
        return seen.available if rate is None else rate * SAMPLE_SECONDS


class FullAdmission:
    def admit(self, seen: SeenSample) -> float:
        return seen.available


def build_regulator(law: str, delay: int) -> FlowRegulator:
    """Return the regulator by the law's name."""
    if law == "spark-pid":
        return SparksLaw()
    if law == "uncontrolled":
        return FullAdmission()
    if law == "adaptive":
        return ShippedFlow("i-p", "adaptive", delay)
    return ShippedFlow(law, "fixed", delay)


@dataclass(frozen=True)
class _Course:
    offered: Floats
    starved: npt.NDArray[np.bool_]  # nothing can be read, not even waiting events
    capable: Floats  # events that the stage can serve
    gain: Floats
    setpoint_kb: Floats


def build_course(settings: Mapping[str, Any], seed: int, trace: Floats | None) -> _Course:
    """Return the disturbances; the same for all laws of a seed."""
    at = np.arange(SAMPLES)
    shape = np.ones(SAMPLES) if trace is None else resample(trace, SAMPLES)
    offered = OFFERED_SHARE * SERVED_PER_SAMPLE * shape
    hogged = (at >= HOG_FROM) & (at < HOG_UNTIL)
    capable = SERVED_PER_SAMPLE / np.where(hogged, 1 + settings["hog"], 1.0)
    return _Course(
        offered,
        (at >= STARVED_FROM) & (at < STARVED_FROM + settings["starvation"]),
        add_noise(capable, settings["noise"], create_random_generator(seed, "served")),
        np.where(at >= GAIN_AT, settings["gain_factor"], 1.0),
        np.where(at >= STEP_AT, REFERENCE_KB, FIRST_REFERENCE_KB),
    )


@dataclass
class _Tally:
    free_kb: Floats
    admitted: Floats
    served: Floats
    dropped: Floats


def simulate(who: FlowRegulator, of: _Course, delay: int) -> _Tally:
    """Decide every sample on the free space at its start; the plant is at rest before the first."""
    tally = _Tally(*(np.zeros(SAMPLES) for _ in range(4)))
    held, source, late = (
        CAPACITY_KB - FIRST_REFERENCE_KB,
        0.0,
        (SERVED_PER_SAMPLE + (1 - A) * (CAPACITY_KB - FIRST_REFERENCE_KB) / KB_PER_EVENT),
    )
    served, busy_seconds, applied = SERVED_PER_SAMPLE, SAMPLE_SECONDS, late
    for k in range(SAMPLES):
        source += of.offered[k]
        size, available = KB_PER_EVENT * of.gain[k], 0.0 if of.starved[k] else source
        tally.free_kb[k] = CAPACITY_KB - held
        seen = SeenSample(CAPACITY_KB - held, of.setpoint_kb[k], applied, served, busy_seconds, held / size, available)
        applied = min(max(0.0, who.admit(seen)), available)
        source -= applied
        arriving, late = (late, applied) if delay else (applied, late)
        held, served, dropped = _step(held, arriving, of.capable[k], size)
        busy_seconds = SAMPLE_SECONDS * served / of.capable[k] if of.capable[k] else 0.0
        tally.admitted[k], tally.served[k], tally.dropped[k] = applied, served, dropped
    return tally


def _step(held: float, arriving: float, capable: float, size: float) -> tuple[float, float, float]:
    """Return (contents of the queue, events served, events dropped) after a sample."""
    wanted = A * held + size * (arriving - capable)
    idle = max(0.0, -wanted) / size
    dropped = max(0.0, wanted - CAPACITY_KB) / size
    return min(max(wanted, 0.0), CAPACITY_KB), max(0.0, capable - idle), dropped


def run(law: str, settings: Mapping[str, Any], seed: int, trace: Floats | None) -> ScenarioOutcome:
    delay, of = int(settings["delay"]), build_course(settings, seed, trace)
    tally = simulate(build_regulator(law, delay), of, delay)
    free_mb, reference_mb = tally.free_kb / 1000, of.setpoint_kb / 1000
    metrics = {
        "settling_samples": count_settling_samples(free_mb, reference_mb, settings["hog"] > 0),
        "overshoot": round(compute_overshoot(free_mb), 4),
        "minimum_free_mb": round(float(free_mb.min()), 2),
        "drops": round(float(tally.dropped.sum()), 3),
        "rms": round(math.sqrt(float(((free_mb - reference_mb)[GAIN_AT:] ** 2).mean())), 3),
        "served_share": round(float(tally.served.sum() / of.capable.sum()), 4),
    }
    series = {
        "free_mb": free_mb,
        "reference_mb": reference_mb,
        "admitted_events": tally.admitted,
        "served_events": tally.served,
        "dropped_events": tally.dropped,
    }
    return ScenarioOutcome(metrics, series, SAMPLE_SECONDS)


def count_settling_samples(free_mb: Floats, reference_mb: Floats, hog: bool) -> int | None:
    """Return the samples until the free space stays near its reference; None: never."""
    begin, end = (HOG_FROM, HOG_UNTIL) if hog else (STEP_AT, GAIN_AT)
    apart = np.abs(free_mb - reference_mb)[begin:end] > SETTLED_WITHIN * REFERENCE_KB / 1000
    last = int(np.flatnonzero(apart)[-1]) + 1 if apart.any() else 0
    return None if last == end - begin else last


def compute_overshoot(free_mb: Floats) -> float:
    """Return how far the free space fell below the new setpoint, as a share of the step."""
    step = (FIRST_REFERENCE_KB - REFERENCE_KB) / 1000
    return max(0.0, (REFERENCE_KB / 1000 - float(free_mb[STEP_AT:GAIN_AT].min())) / step)


SCENARIO = Scenario(
    "flow",
    "Free space of a result queue during a CPU hog and a change of the plant (Xu et al., section 4).",
    ("i-p", "pi", "adaptive", "spark-pid", "uncontrolled"),
    SETTINGS,
    ("settling_samples", "overshoot", "minimum_free_mb", "drops", "rms"),
    run,
)
