"""Tables and figures of Tang et al."""

from collections.abc import Mapping, Sequence

from controllers.simulation.figures.figure import TANG, PaperFigure, Reported, report, vary

LAWS = ("tcc", "explorer")
RATIOS = vary("ratio", 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
ROWS = vary("p", 10, 15, 20, 25, 30, 35, 40, 45, 50)
E13 = "E13: 17 threads need a round trip of 7 ms; with the printed 5 ms, TCC settles at 12 to 14 threads."
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


def _declare_live(
    number: int,
    title: str,
    finding: str,
    metrics: Sequence[str],
    reported: Mapping[str, Reported],
    erratum: str = "",
    seeds: int = 5,
    **settings: float | str,
) -> PaperFigure:
    """Return a figure of engines that explore while they work; `reported` has the values of TCC."""
    return PaperFigure(
        name=f"tang-figure-{number}",
        paper=TANG,
        number=f"Figure {number}",
        title=title,
        finding=finding,
        scenario="concurrency-live",
        laws=LAWS,
        metrics=metrics,
        settings=settings,
        series=("threads", "utilisation"),
        reported={metric: {"tcc": value} for metric, value in reported.items()},
        erratum=erratum,
        seeds=seeds,
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
        name="tang-figure-7",
        paper=TANG,
        number="Figure 7",
        title="Events of a cluster by number of servers",
        finding="The cluster scales almost linearly. The servers are the bottleneck.",
        scenario="concurrency-live",
        laws=LAWS,
        metrics=("linear_share", "threads_later"),
        settings={"bottleneck": "engine", "seconds": 600},
        cases=vary("servers", 1, 2, 3, 4),
        axis="servers",
        reported={"linear_share": report("tcc", ["1", "2", "3", "4"], [(0.85, 1.0)] * 4)},
        seeds=3,
    ),
    _declare_live(
        8,
        "The CPU of the web machine is the bottleneck",
        "The first steady state has 17 threads at 85 s. Later, the threads vary between 15 and 17, "
        "and the utilization stays around 90 %.",
        ("utilisation", "threads_first", "threads_least", "threads_most", "seconds_to_first"),
        {
            "threads_first": 17.0,
            "threads_least": 15.0,
            "threads_most": 17.0,
            "seconds_to_first": (None, 85.0),
            "utilisation": 0.9,
        },
        E13,
    ),
    _declare_live(
        9,
        "Memory becomes the bottleneck",
        "TCC has 69 threads before the memory is full, at 496 s. It then reduces them to 44, and the swapping ends.",
        ("threads_first", "threads_last", "utilisation"),
        {"threads_first": 69.0, "threads_last": 44.0},
        bottleneck="memory",
        onset=496,
        seconds=2000,
        seeds=3,
    ),
    _declare_live(
        10,
        "The disk becomes the bottleneck",
        "TCC has 107 threads before the disk is used, at 247 s. It then reduces them step by step to 7.",
        ("threads_first", "threads_last", "utilisation"),
        {"threads_first": 107.0, "threads_last": 7.0},
        bottleneck="disk",
        onset=247,
        seconds=2000,
        seeds=3,
    ),
    _declare_live(
        11,
        "The network is the bottleneck",
        "TCC stops adding threads at a network utilization of about 92 %.",
        ("utilisation", "threads_first", "threads_later"),
        {"utilisation": 0.92},
        bottleneck="network",
    ),
    _declare_live(
        12,
        "A program competes for the CPU of the web machine",
        "The steady threads fall from 17 to 10 and 8 while the program runs, and return to 17 afterward.",
        ("share", "threads_first", "threads_least", "threads_most"),
        {"share": (None, 0.4955), "threads_first": 17.0, "threads_least": 8.0, "threads_most": 17.0},
        f"{E13} E15: the competing program is an open stream.",
        competitor=0.5,
    ),
    _declare_live(
        13,
        "Two servers share the web machine",
        "The throughput of each server oscillates around half of the capacity, with about 8 threads each.",
        ("share", "threads_later", "utilisation"),
        {"share": 0.5, "threads_later": 8.0},
        "The paper adds no delay and does not state the delay of its network. Without a delay, two threads per server "
        "saturate the web machine. With about 5 ms, 8 threads do.",
        servers=2,
        delay_ms=5,
        together=0,
        seconds=3000,
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
