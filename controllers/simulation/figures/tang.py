"""Tables and figures of Tang et al."""

from controllers.simulation.figures.figure import TANG, PaperFigure, report, vary

LAWS = ("tcc", "explorer")
RATIOS = vary("ratio", 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
ROWS = vary("p", 10, 15, 20, 25, 30, 35, 40, 45, 50)
E10 = "E10: the printed row for p = 20 % violates condition (2); with q = 11.5 %, w must be at least 45.4 %."


def _declare_model(letter: str, model: str, title: str, finding: str, at_one: float | None) -> PaperFigure:
    good = {f"tcc@{case}": (0.85, 0.99) for case in RATIOS}
    return PaperFigure(
        name=f"tang-figure-5{letter}",
        paper=TANG,
        number=f"Figure 5({letter})",
        title=title,
        finding=finding,
        scenario="concurrency",
        laws=LAWS,
        metrics=("utilisation", "threads", "steps"),
        settings={"model": model},
        cases=RATIOS,
        axis="ratio",
        reported={"utilisation": good | ({} if at_one is None else {"tcc@1": at_one})},
        seeds=1,
    )


FIGURES = (
    PaperFigure(
        name="tang-table-1",
        paper=TANG,
        number="Table 1",
        title="Share of a saturated resource next to a competitor, by row of the table",
        finding="With p = 25 %, a controller takes about 44 to 49 % of the bottleneck next to a constant competitor.",
        scenario="concurrency",
        laws=("tcc",),
        metrics=("share", "utilisation", "threads"),
        cases=ROWS,
        axis="p",
        reported={"share": {"tcc@25": (0.44, 0.4955)}},
        erratum=f"{E10} E12: the share is 44.0 to 49.55 %.",
        seeds=1,
    ),
    _declare_model(
        "a",
        "repairman",
        "Threads and CPU utilization, machine repairman",
        "The threads follow the blocking ratio, and the utilization stays high without saturation.",
        None,
    ),
    _declare_model(
        "b",
        "escalation",
        "Threads and CPU utilization, event escalation",
        "The lowest utilization, 88 %, occurs at a ratio of 1.",
        0.88,
    ),
    _declare_model(
        "c",
        "enrichment",
        "Threads and CPU utilization, event enrichment",
        "The lowest utilization, 85 %, occurs at a ratio of 1.",
        0.85,
    ),
    PaperFigure(
        name="tang-figure-8",
        paper=TANG,
        number="Figure 8",
        title="The CPU of the web machine is the bottleneck",
        finding="The first steady state has 17 threads at 85 s. Later, the threads vary between 15 and 17, "
        "and the utilization stays around 90 %.",
        scenario="concurrency-live",
        laws=LAWS,
        metrics=("utilisation", "threads_first", "threads_least", "threads_most", "seconds_to_first"),
        series=("threads", "utilisation"),
        reported={
            "threads_first": {"tcc": 17.0},
            "threads_least": {"tcc": 15.0},
            "threads_most": {"tcc": 17.0},
            "seconds_to_first": {"tcc": (None, 85.0)},
            "utilisation": {"tcc": (0.85, 0.96)},
        },
        erratum="E13: 17 threads need a round trip of 7 ms; with the printed 5 ms, TCC settles at 12 to 14 threads.",
    ),
    PaperFigure(
        name="tang-figure-11",
        paper=TANG,
        number="Figure 11",
        title="The network is the bottleneck",
        finding="TCC stops adding threads at a network utilization of about 92 %.",
        scenario="concurrency-live",
        laws=LAWS,
        metrics=("utilisation", "threads_first", "threads_later"),
        settings={"bottleneck": "network"},
        series=("threads", "utilisation"),
        reported={"utilisation": {"tcc": 0.92}},
    ),
    PaperFigure(
        name="tang-figure-12",
        paper=TANG,
        number="Figure 12",
        title="A program competes for the CPU of the web machine",
        finding="The steady threads fall from 17 to 10 and 8 while the program runs, and return to 17 afterward.",
        scenario="concurrency-live",
        laws=LAWS,
        metrics=("share", "threads_first", "threads_least", "threads_most"),
        settings={"competitor": 0.5},
        series=("threads", "utilisation"),
        reported={
            "share": {"tcc": (None, 0.4955)},
            "threads_first": {"tcc": 17.0},
            "threads_least": {"tcc": 8.0},
            "threads_most": {"tcc": 17.0},
        },
        erratum="E13: 17 threads need a round trip of 7 ms. E15: the competing program is an open stream.",
    ),
    PaperFigure(
        name="tang-figure-13",
        paper=TANG,
        number="Figure 13",
        title="Two servers share the web machine",
        finding="The throughput of each server oscillates around half of the capacity, with about 8 threads each.",
        scenario="concurrency-live",
        laws=LAWS,
        metrics=("share", "threads_later", "utilisation"),
        settings={"servers": 2, "delay_ms": 0, "together": 0, "seconds": 3000},
        series=("threads", "utilisation"),
        reported={"share": {"tcc": 0.5}, "threads_later": {"tcc": 8.0}},
        seeds=3,
    ),
    PaperFigure(
        name="tang-figure-14",
        paper=TANG,
        number="Figure 14",
        title="Utilization of the bottleneck by controller",
        finding="TCC keeps 90 to 95 % in all configurations of Table 1, Vegas+ 55 %, and Vegas++ 70 %.",
        scenario="concurrency",
        laws=(*LAWS, "vegas+", "vegas++"),
        metrics=("utilisation", "threads"),
        settings={"model": "section-4.8"},
        cases=ROWS,
        axis="p",
        reported={
            "utilisation": report("tcc", list(ROWS), [(0.9, 0.95)] * len(ROWS))
            | report("vegas+", list(ROWS), [0.55] * len(ROWS))
            | report("vegas++", list(ROWS), [0.7] * len(ROWS))
        },
        erratum=E10,
        seeds=1,
    ),
)
