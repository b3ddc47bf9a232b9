"""Figures of Röger et al."""

from controllers.simulation.figures.figure import ROEGER, PaperFigure

CASES = {name: {"balance": name} for name in ("balanced", "q11-scarce", "q12-scarce")}

FIGURES = (
    PaperFigure(
        name="roeger-figure-3",
        paper=ROEGER,
        number="Figure 3",
        title="Loss of matches by local shedding, relative to global shedding",
        finding="Both perspectives give the same output if the other sources are balanced. "
        "With unbalanced data, the local perspective loses matches.",
        scenario="shedding",
        laws=("global", "local", "random"),
        metrics=("matches", "recall", "latency_mean_seconds"),
        settings={"seconds": 3600},
        cases=CASES,
        reported={"relative_loss": {"local@balanced": (-0.05, 0.05), "local@q11-scarce": (0.01, None)}},
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
        settings={"seconds": 3600, "balance": "q11-scarce"},
        series=("processing_seconds", "required_seconds"),
        reported={"deviation_seconds": {"global": (0.0, 0.001), "local": (0.0, 0.001)}},
        erratum="E20 and E25: the required mean processing time follows from the bound and the variability of service.",
        seeds=3,
    ),
)
