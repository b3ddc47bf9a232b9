"""Parameters and observation of the concurrency law."""

from common.parameter import Parameter

PARAMETERS = (
    Parameter(
        "method",
        "choice",
        "tcc: the published state machine. explorer: probes and a fitted curve.",
        "tcc",
        kind="choice",
        choices=("tcc", "explorer"),
    ),
    Parameter("p", "share of the threads", "Threads added per step.", 0.25, 0.01, 2),
    Parameter("q", "share of the throughput", "Minimum gain from adding p.", 0.14, 0.001, 2),
    Parameter("w", "share of the threads", "Threads removed before exploring.", 0.39, 0, 0.99),
    Parameter("r", "share of the threads", "Threads removed per step.", 0.10, 0.001, 0.9),
    Parameter("keep", "share of the best", "Minimum throughput after removing threads.", 0.95, 0.1, 1),
    Parameter("alpha", "probability", "Probability of a wrong decision.", 0.10, 1e-6, 0.499),
    Parameter("beta", "share", "Width of the indifference zone.", 0.25, 0.001, 1.9),
    Parameter("start", "threads", "Threads at the start of an exploration.", 1, 1, 100_000, "integer"),
    Parameter("minimum", "threads", "Minimum number of threads.", 1, 1, 100_000, "integer"),
    Parameter("maximum", "threads", "Maximum number of threads.", 1_000, 1, 100_000, "integer"),
    Parameter("initial_samples", "samples", "Minimum samples for a decision.", 30, 2, 100_000, "integer"),
    Parameter("most_samples", "samples", "Maximum samples of a configuration.", 20_000, 2, 10_000_000, "integer"),
    Parameter("max_factor", "times", "Samples in the max phase, as a multiple of a step's.", 2.0, 1, 100),
    Parameter("steady_seconds", "s", "Time until the next exploration.", 300.0, 1, 1e7),
    Parameter("trial_seconds", "s", "Time until one more step is tested in the steady state; 0: never.", 0.0, 0, 1e7),
    Parameter("change", "share of the throughput", "Change that starts an exploration immediately.", 0.2, 0.01, 10),
    Parameter(
        "patience",
        "observations",
        "Observations of a different size before it counts as the pool's limit.",
        5,
        1,
        1_000,
        "integer",
    ),
    Parameter(
        "aim",
        "choice",
        "friendly: share a bottleneck with others. peak (explorer): maximum throughput.",
        "friendly",
        kind="choice",
        choices=("friendly", "peak"),
    ),
    Parameter("probe_error", "share", "Maximum standard error of a point (explorer).", 0.01, 1e-4, 0.5),
    Parameter("fit_tolerance", "share", "Maximum error of an accepted curve.", 0.08, 0, 1),
    Parameter("verify_tolerance", "share", "Maximum distance of a verified point from the curve.", 0.04, 0, 1),
    Parameter(
        "verifications",
        "times",
        "Maximum number of times that points off the curve are added to the fit.",
        2,
        0,
        20,
        "integer",
    ),
    Parameter(
        "peak_share",
        "share of the peak",
        "Sufficient share of the peak, if more threads reduce throughput.",
        0.998,
        0.5,
        1,
    ),
)
OBSERVATION = (
    Parameter(
        "threads", "threads", "Threads in the pool during the measurement.", 1, 0, 100_000, "integer", required=True
    ),
    Parameter(
        "interdeparture_seconds",
        "s",
        "Times between completions, without idle time.",
        maximum=1e9,
        kind="numbers",
        required=True,
    ),
    Parameter("seconds", "s", "Time since the last observation; default: the sum of the times.", None, 0, 1e9),
    Parameter(
        "epoch", "explorations", "Newest exploration among pools that share a resource.", None, 0, 1e9, "integer"
    ),
    Parameter(
        "mean_threads", "threads", "Mean threads of those pools and this one; omitted: unknown.", None, 0, 100_000
    ),
    Parameter("trouble", "text", "Reason why the pool does not have the requested size, if known.", kind="text"),
    Parameter(
        "ends_idle",
        "flag",
        "true: the pool ends only idle threads, so a search starts at its current size.",
        False,
        kind="flag",
    ),
    Parameter("steered", "flag", "false: decisions are not applied to the pool.", True, kind="flag"),
)
