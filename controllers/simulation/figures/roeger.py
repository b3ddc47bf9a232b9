"""Figures of Röger et al."""

from controllers.simulation.figures.figure import ROEGER, PaperFigure, report, vary

CASES = vary("balance", "balanced", "q11-scarce", "q12-scarce", "borg-1", "borg-2")
TRACES = vary("balance", "q11-scarce", "borg-1", "borg-2")
# The permitted deviation is 10 % of the required processing time, which is 7 ms.
WITHIN = (0.0, 0.0007)

FIGURES = (
    PaperFigure(
        name="roeger-figure-3",
        paper=ROEGER,
        number="Figure 3",
        title="Loss of matches by local shedding, relative to global shedding",
        finding="Both perspectives give the same output if the other sources are balanced. "
        "With the two data sets of the Borg cluster, the local perspective loses matches.",
        scenario="shedding",
        laws=("global", "local", "random"),
        metrics=("matches", "recall", "latency_mean_seconds"),
        settings={"seconds": 3600},
        cases=CASES,
        reported={
            "relative_loss": {"local@balanced": (-0.05, 0.05)}
            | report("local", ["q11-scarce", "borg-1", "borg-2"], [(0.01, None)] * 3)
        },
        loss_to="global",
        erratum="E22 to E25: OR, nested types, windows, and the variability of service change selectivity and bound.",
        seeds=3,
    ),
    PaperFigure(
        name="roeger-figures-4-to-5",
        paper=ROEGER,
        number="Figures 4 and 5",
        title="Processing time, and its total deviation from the required processing time",
        finding="Both strategies keep the deviation low, within the permitted 10 %. Without shedding, it is higher.",
        scenario="shedding",
        laws=("global", "local", "none"),
        metrics=("deviation_seconds", "latency_mean_seconds", "bound_violations"),
        settings={"seconds": 3600},
        cases=TRACES,
        series=("processing_seconds", "required_seconds"),
        reported={
            "deviation_seconds": report("global", list(TRACES), [WITHIN] * 3)
            | report("local", list(TRACES), [WITHIN] * 3)
            | report("none", list(TRACES), [(WITHIN[1], None)] * 3)
        },
        erratum="E20 and E25: the required mean processing time follows from the bound and the variability of service.",
        seeds=3,
    ),
)
