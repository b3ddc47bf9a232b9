"""What can be set of the concurrency law, and what it observes."""

from controllers.framework.parameter import Parameter

PARAMETERS = (
    Parameter(
        "method",
        "choice",
        "tcc: the automaton. explorer: probes and a fitted curve.",
        "tcc",
        kind="choice",
        choices=("tcc", "explorer"),
    ),
    Parameter("p", "share of the threads", "Added at a time.", 0.25, 0.01, 2),
    Parameter("q", "share of the throughput", "What adding p has to bring.", 0.14, 0.001, 2),
    Parameter("w", "share of the threads", "Taken away before exploring.", 0.39, 0, 0.99),
    Parameter("r", "share of the threads", "Removed at a time.", 0.10, 0.001, 0.9),
    Parameter("keep", "share of the best", "Throughput that removing may leave.", 0.95, 0.1, 1),
    Parameter("alpha", "probability", "Of deciding wrongly.", 0.10, 1e-6, 0.499),
    Parameter("beta", "share", "Width of the zone of indifference.", 0.25, 0.001, 1.9),
    Parameter("start", "threads", "Where exploring begins.", 1, 1, 100_000, "integer"),
    Parameter("minimum", "threads", "Never fewer.", 1, 1, 100_000, "integer"),
    Parameter("maximum", "threads", "Never more.", 1_000, 1, 100_000, "integer"),
    Parameter("initial_samples", "samples", "The fewest anything is decided on.", 30, 2, 100_000, "integer"),
    Parameter(
        "most_samples", "samples", "No configuration is measured longer.", 20_000, 2, 10_000_000, "integer"
    ),
    Parameter("max_factor", "times", "Samples in the max state over those of a step.", 2.0, 1, 100),
    Parameter("steady_seconds", "s", "Until the next exploration.", 300.0, 1, 1e7),
    Parameter("trial_seconds", "s", "Until a step more is tried in the steady state; 0: never.", 0.0, 0, 1e7),
    Parameter("change", "share of the throughput", "A change that calls for one at once.", 0.2, 0.01, 10),
    Parameter(
        "patience", "observations", "A pool that refuses longer is at its limit.", 5, 1, 1_000, "integer"
    ),
    Parameter(
        "aim",
        "choice",
        "friendly: share a bottleneck with others. peak (explorer): the most throughput there is.",
        "friendly",
        kind="choice",
        choices=("friendly", "peak"),
    ),
    Parameter("probe_error", "share", "The explorer's standard error of a point.", 0.01, 1e-4, 0.5),
    Parameter("fit_tolerance", "share", "Error of a curve that is still trusted.", 0.08, 0, 1),
    Parameter("verify_tolerance", "share", "How far a verified point may lie off the curve.", 0.04, 0, 1),
    Parameter("verifications", "times", "Points that lie off are joined so often.", 2, 0, 20, "integer"),
    Parameter("peak_share", "share of the peak", "Enough, where more threads do harm.", 0.998, 0.5, 1),
)
OBSERVATION = (
    Parameter(
        "threads", "threads", "In the pool while this was measured.", 1, 0, 100_000, "integer", required=True
    ),
    Parameter(
        "interdeparture_seconds",
        "s",
        "Between completions, idle time excluded.",
        maximum=1e9,
        kind="numbers",
        required=True,
    ),
    Parameter("seconds", "s", "Since the last observation; not given, the sum of the times.", None, 0, 1e9),
    Parameter(
        "epoch", "explorations", "The newest among pools that share what is scarce.", None, 0, 1e9, "integer"
    ),
    Parameter(
        "mean_threads", "threads", "Of those pools and this one; not given: unknown.", None, 0, 100_000
    ),
    Parameter("trouble", "text", "Why the pool is not what it was set to, if known.", kind="text"),
    Parameter(
        "ends_idle",
        "flag",
        "True: the pool ends only idle threads, so that a search begins with what it has.",
        False,
        kind="flag",
    ),
    Parameter("steered", "flag", "False: nobody sets the pool to what is decided.", True, kind="flag"),
)
