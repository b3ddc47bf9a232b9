"""Tables and figures of Houtman's thesis."""

from collections.abc import Mapping, Sequence

from controllers.simulation.figures.figure import HOUTMAN, PaperFigure, Reported, report, vary

LIMITS = vary("upper_limit", 50, 250, 500, 1000, 2000, 5000, 15000)
CONFIGURATIONS = vary("configuration", 1, 2, 3, 4)
MANAGER_ERRATA = (
    "E42: one step of 20 % per evaluation of 5 s reproduces the tables best; the waiting events are summed every 5 s, "
    "after the workers ran."
)


def _declare_manager_table(
    number: str, figures: str, rate: float, size: int, static: float, waiting: Sequence[float], ran: Sequence[float]
) -> PaperFigure:
    return PaperFigure(
        name=f"houtman-table-{number.replace('.', '-')}",
        paper=HOUTMAN,
        number=f"Table {number}, Figures {figures}",
        title=f"Workers for up to {rate:,g} events/s by upper limit",
        finding="A higher upper limit needs fewer workers, but more events wait. "
        "From 500 events upward, the manager needs fewer workers than the static configuration.",
        scenario="manager",
        laws=("worker_rate", "thesis", "static"),
        metrics=("worker_runs", "waiting_5s_post"),
        settings={"max_rate": rate, "events_per_worker": size},
        cases=LIMITS,
        axis="upper_limit",
        reported={
            "worker_runs": report("thesis", list(LIMITS), ran) | report("static", list(LIMITS), [static] * len(LIMITS)),
            "waiting_5s_post": report("thesis", list(LIMITS), waiting),
        },
        erratum=MANAGER_ERRATA,
        seeds=1,
    )


def _declare_model_figure(number: str, law: str, share: str) -> PaperFigure:
    return PaperFigure(
        name=f"houtman-figures-{number.lower().replace('.', '-').replace(' to ', '-to-')}",
        paper=HOUTMAN,
        number=f"Figures {number}",
        title=f"A day of queues on nodes, moving {share} of the containers of a TOOBUSY node",
        finding="With one container per attempt, the container that causes the load is rarely chosen at first. "
        "Larger shares choose it sooner. Configuration 2 is overloaded at its peak.",
        scenario="queues",
        laws=("rebalancing", law),
        metrics=("toobusy_node_minutes", "minutes_to_clear", "points_moved", "nodes_used_mean"),
        cases=CONFIGURATIONS,
        axis="configuration",
    )


def _declare_managed(
    numbers: str,
    title: str,
    finding: str,
    event: str,
    metrics: Sequence[str],
    series: Sequence[str],
    reported: Mapping[str, Mapping[str, Reported]],
    cases: Mapping[str, Mapping[str, int]] | None = None,
) -> PaperFigure:
    """Return figures of the nodes with their managers."""
    return PaperFigure(
        name=f"houtman-{event}",
        paper=HOUTMAN,
        number=f"Figures {numbers}",
        title=title,
        finding=finding,
        scenario="managed-queues",
        laws=("weir", "thesis"),
        metrics=metrics,
        settings={"event": event},
        cases=cases or {"": {}},
        series=series,
        reported=reported,
        seeds=3,
    )


ATTEMPTS = vary("attempts", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
FIGURES = (
    PaperFigure(
        name="houtman-table-4-1",
        paper=HOUTMAN,
        number="Table 4.1",
        title="Chance that the container that causes the load was chosen, by attempt",
        finding="After three attempts, the chance is 58 % with a selection of 25 %, and 78 % with 40 %.",
        scenario="selection",
        laws=("rebalancing", "random-25", "random-40"),
        metrics=("chance",),
        cases=ATTEMPTS,
        axis="attempts",
        reported={
            "chance": report(
                "random-25", list(ATTEMPTS), (0.25, 0.4375, 0.578, 0.683, 0.762, 0.822, 0.866, 0.899, 0.924, 0.943)
            )
            | report("random-40", list(ATTEMPTS), (0.4, 0.64, 0.784, 0.87, 0.922, 0.953, 0.972, 0.983, 0.989, 0.993))
        },
        erratum="E40: the second attempt at 25 % is 43.75 %, not 4.7 %.",
    ),
    *(
        _declare_model_figure(number, law, share)
        for number, law, share in (
            ("B.1 to B.4", "random-25", "25 %"),
            ("B.5 to B.8", "random-40", "40 %"),
            ("B.14 to B.17", "random-one", "one"),
        )
    ),
    PaperFigure(
        name="houtman-figures-b-18-to-b-19",
        paper=HOUTMAN,
        number="Figures B.18 and B.19",
        title="Crash of a queue node: inserts are diverted to the other nodes",
        finding="The load balancer excludes the node after its next pull, within 5 s. The other containers take over.",
        scenario="crash",
        laws=("rebalancing", "thesis"),
        metrics=("events_lost", "seconds_to_divert", "points_restored"),
        series=("tried_at_node_per_second",),
        reported={"seconds_to_divert": {"thesis": (0.0, 5.0)}, "points_restored": {"thesis": 0.0}},
    ),
    _declare_managed(
        "B.9 to B.13 and B.43 to B.57",
        "A day on three unequal nodes, with a manager for each container",
        "The smallest node becomes TOOBUSY and moves points to the others. The worker rates follow the event rates.",
        "day",
        ("toobusy_node_minutes", "waiting_greatest", "worker_runs"),
        ("n1_used_share", "n2_used_share", "n3_used_share", "alert_worker_rate", "waiting_events"),
        {"toobusy_node_minutes": {"thesis": (1.0, None)}},
    ),
    _declare_managed(
        "B.18 to B.21",
        "Crash of a node, with managers",
        "The manager on the remaining node raises its rate. The manager of the crashed node lowers it.",
        "node-crash",
        ("events_lost", "seconds_to_restore", "waiting_greatest"),
        ("alert_worker_rate", "waiting_events"),
        {"events_lost": {"thesis": (1.0, None)}},
    ),
    _declare_managed(
        "B.58 to B.60",
        "Overload of a node, and the death spiral",
        "The manager raises its rate while the node is overloaded, which overloads it further. "
        "Moving points every 15 min does not help. The thesis aborted the test.",
        "overload",
        ("waiting_end", "waiting_greatest", "overshoot_rate"),
        ("n3_used_share", "alert_worker_rate", "waiting_events"),
        {"overshoot_rate": {"thesis": (2.0, None)}},
    ),
    _declare_managed(
        "B.61 and B.62",
        "Crash of a manager, with and without extra workers for the backlog",
        "The manager restores the queue within minutes. "
        "Without extra workers, its rate overshoots by a factor of at least two.",
        "manager-crash",
        ("overshoot_rate", "seconds_to_restore"),
        ("alert_worker_rate", "alert_waiting_events"),
        {
            "overshoot_rate": {"thesis@backlog": (None, 2.0), "thesis@no-backlog": (2.0, None)},
            "seconds_to_restore": {"thesis@backlog": (None, 600.0)},
        },
        {"backlog": {"backlog": 1}, "no-backlog": {"backlog": 0}},
    ),
    _declare_manager_table(
        "4.2",
        "B.22 to B.28",
        50,
        50,
        12_000,
        (230269, 618564, 1093347, 1449517, 3047514, 9448519, 42139598),
        (16319, 10766, 9461, 10175, 9982, 9614, 8375),
    ),
    _declare_manager_table(
        "4.3",
        "B.29 to B.35",
        1000,
        50,
        240_000,
        (7144436, 7452414, 9909419, 10599948, 12052485, 16591509, 32221041),
        (211115, 175680, 167900, 158138, 157162, 155812, 147241),
    ),
    _declare_manager_table(
        "4.4",
        "B.36 to B.42",
        3000,
        400,
        90_000,
        (18489993, 18711647, 19049233, 20209587, 23171925, 30052367, 43745289),
        (97404, 93843, 81263, 74626, 70592, 62926, 60734),
    ),
)
