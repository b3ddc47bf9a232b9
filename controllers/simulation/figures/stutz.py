"""Figures of Stutz's thesis."""

from controllers.simulation.figures.figure import STUTZ, PaperFigure

FIGURES = (
    PaperFigure(
        name="stutz-figures-9-3-to-9-5",
        paper=STUTZ,
        number="Figures 9.3 to 9.5",
        title="A week of tuples in two hours: tasks, latency, and error rate",
        finding="WT changes the tasks often and between extremes; RG keeps them constant. On average, both need about "
        "the same tasks, but WT has the lower latency and error rate.",
        scenario="elasticity",
        laws=("joint", "wt", "rg"),
        settings={"topology": "stutz"},
        cases={"drop": {"overflow": "drop"}, "back-pressure": {"overflow": "back-pressure", "buffer_events": 50_000}},
        metrics=("tasks_mean", "latency_mean_seconds", "error_rate", "rescales"),
        series=("tasks", "latency_seconds", "failed_per_second"),
        erratum="E30 to E36: the waiting time, its inverse with the coefficient e, the kernel, and the last operator.",
        seeds=3,
    ),
)
