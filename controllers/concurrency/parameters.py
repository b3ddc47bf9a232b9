"""Parameters and observation of the concurrency law, and the steady state of its explorations."""

from typing import Annotated, Literal

import msgspec

from common.parameter import value

MAX_THREADS = 100_000
MAX_STEPS = 1e15
MAX_PER_SECOND = 1e12


class ConcurrencyParameters(msgspec.Struct, frozen=True, kw_only=True):
    method: Annotated[
        Literal["tcc", "explorer"],
        value("choice", "tcc: the published state machine. explorer: probes and a fitted curve."),
    ] = "tcc"
    p: Annotated[float, value("share of the threads", "Threads added per step.", 0.01, 2)] = 0.25
    q: Annotated[float, value("share of the throughput", "Minimum gain from adding p.", 0.001, 2)] = 0.14
    w: Annotated[float, value("share of the threads", "Threads removed before exploring.", 0, 0.99)] = 0.39
    r: Annotated[float, value("share of the threads", "Threads removed per step.", 0.001, 0.9)] = 0.1
    keep: Annotated[float, value("share of the best", "Minimum throughput after removing threads.", 0.1, 1)] = 0.95
    alpha: Annotated[float, value("probability", "Probability of a wrong decision.", 1e-6, 0.499)] = 0.1
    beta: Annotated[float, value("share", "Width of the indifference zone.", 0.001, 1.9)] = 0.25
    start: Annotated[int, value("threads", "Threads at the start of an exploration.", 1, 100_000)] = 1
    minimum: Annotated[int, value("threads", "Minimum number of threads.", 1, 100_000)] = 1
    maximum: Annotated[int, value("threads", "Maximum number of threads.", 1, 100_000)] = 1_000
    initial_samples: Annotated[int, value("samples", "Minimum samples for a decision.", 2, 100_000)] = 30
    most_samples: Annotated[int, value("samples", "Maximum samples of a configuration.", 2, 10_000_000)] = 20_000
    max_factor: Annotated[float, value("times", "Samples in the max phase, as a multiple of a step's.", 1, 100)] = 2.0
    steady_seconds: Annotated[float, value("s", "Time until the next exploration.", 1, 1e7)] = 300.0
    trial_seconds: Annotated[
        float, value("s", "Time until one more step is tested in the steady state; 0: never.", 0, 1e7)
    ] = 0.0
    change: Annotated[
        float, value("share of the throughput", "Change that starts an exploration immediately.", 0.01, 10)
    ] = 0.2
    patience: Annotated[
        int, value("observations", "Observations of a different size before it counts as the pool's limit.", 1, 1_000)
    ] = 5
    probe_seconds: Annotated[
        float, value("s", "Time after which a probe without enough samples is undone; 0: never.", 0, 1e7)
    ] = 0.0
    aim: Annotated[
        Literal["friendly", "peak"],
        value("choice", "friendly: share a bottleneck with others. peak (explorer): maximum throughput."),
    ] = "friendly"
    probe_error: Annotated[float, value("share", "Maximum standard error of a point (explorer).", 1e-4, 0.5)] = 0.01
    fit_tolerance: Annotated[float, value("share", "Maximum error of an accepted curve.", 0, 1)] = 0.08
    verify_tolerance: Annotated[float, value("share", "Maximum distance of a verified point from the curve.", 0, 1)] = (
        0.04
    )
    verifications: Annotated[
        int, value("times", "Maximum number of times that points off the curve are added to the fit.", 0, 20)
    ] = 2
    peak_share: Annotated[
        float, value("share of the peak", "Sufficient share of the peak, if more threads reduce throughput.", 0.5, 1)
    ] = 0.998


class ConcurrencyObservation(msgspec.Struct, frozen=True, kw_only=True):
    threads: Annotated[int, value("threads", "Threads in the pool during the measurement.", 0, 100_000)]
    interdeparture_seconds: Annotated[
        list[float], value("s", "Times between completions, without idle time.", 0.0, 1e9)
    ]
    seconds: Annotated[
        float | None, value("s", "Time since the last observation; default: the sum of the times.", 0, 1e9)
    ] = None
    epoch: Annotated[
        int | None, value("explorations", "Newest exploration among pools that share a resource.", 0, 1e9)
    ] = None
    mean_threads: Annotated[
        float | None, value("threads", "Mean threads of those pools and this one; omitted: unknown.", 0, 100_000)
    ] = None
    trouble: Annotated[str | None, value("text", "Reason why the pool does not have the requested size, if known.")] = (
        None
    )
    ends_idle: Annotated[
        bool, value("flag", "true: the pool ends only idle threads, so a search starts at its current size.")
    ] = False
    steered: Annotated[bool, value("flag", "false: decisions are not applied to the pool.")] = True
    waiting: Annotated[bool, value("flag", "true: work waits for a thread, so the pool is not reduced.")] = False
    elapsed_seconds: Annotated[
        float | None, value("s", "Time since the last observation, with idle time; default: `seconds`.", 0, 1e9)
    ] = None
    open_seconds: Annotated[
        float | None, value("s", "Time since the last sample while all threads had work.", 0, 1e9)
    ] = None
    open_events: Annotated[float | None, value("events", "Maximum number of completions in this time.", 0, 1e12)] = None
    mix: Annotated[
        dict[str, Annotated[float, value("share", "Share of the time.", 0, 1)]],
        value("share", "Share of the processing time by kind of work; empty: unknown."),
    ] = {}


class Exploration(msgspec.Struct, frozen=True, kw_only=True):
    """The state that both explorations remember: their phase, size, and steady state."""

    phase: Annotated[str, value("choice", "Phase of the exploration.", choices=("steady",))]
    # A pool that is not controlled may have no threads.
    threads: Annotated[int, value("threads", "Threads in use.", 0, MAX_THREADS)]
    steady_per_second: Annotated[
        float, value("per second", "Throughput at the start.", 0, MAX_PER_SECOND, required=True)
    ] = 0.0
    steady_seconds: Annotated[float, value("s", "Time in the steady state.", 0, 1e15, required=True)] = 0.0
    doubted: Annotated[bool, value("flag", "True: the last check measured another throughput.", required=True)] = False
    steps: Annotated[int, value("steps", "Steps of all explorations.", 0, MAX_STEPS, required=True)] = 0
