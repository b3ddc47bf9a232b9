"""Figures of Xu et al."""

from controllers.simulation.figures.figure import XU, PaperFigure

FIGURES = (
    PaperFigure(
        name="xu-figure-3",
        paper=XU,
        number="Figure 3",
        title="Drops without flow control while the event rate rises",
        finding="Events are dropped as the free space of the result queue goes to zero. "
        "The drop rate increases with the event rate.",
        scenario="flow",
        laws=("uncontrolled", "i-p"),
        metrics=("drops", "minimum_free_mb"),
        settings={"ramp": 1, "hog": 0},
        series=("free_mb", "dropped_events", "admitted_events"),
        reported={"drops": {"uncontrolled": (1.0, None), "i-p": 0.0}, "minimum_free_mb": {"uncontrolled": (0.0, 1.0)}},
    ),
    PaperFigure(
        name="xu-figure-6",
        paper=XU,
        number="Figure 6",
        title="Free space of the result queue during a CPU hog",
        finding="The controller quickly returns the free space to 400 MB, before and after the CPU hog. "
        "No events are dropped. The closed loop is designed to settle in about 5 samples.",
        scenario="flow",
        laws=("i-p", "pi", "adaptive", "spark-pid", "uncontrolled"),
        metrics=("settling_samples", "minimum_free_mb", "drops", "rms"),
        series=("free_mb", "admitted_events"),
        reported={"drops": {"pi": 0.0, "i-p": 0.0}, "settling_samples": {"pi": (None, 6.0), "i-p": (None, 6.0)}},
        erratum="E1: the printed integral gain 0.02168 is unstable; the poles 0.046 ± 0.4i need -0.007986. "
        "E6: the velocity form uses the applied value.",
    ),
    PaperFigure(
        name="xu-section-3-1",
        paper=XU,
        number="Section 3.1",
        title="A result queue per replica, with a CPU hog on one of two replicas",
        finding="Each processing element controls the free space of its own result queue. No events are dropped. "
        "One shared queue with the same loss of capacity is the comparison.",
        scenario="flow",
        laws=("i-p", "pi", "adaptive", "uncontrolled"),
        metrics=("drops", "settling_samples", "minimum_free_mb", "rms"),
        cases={"one-queue": {"hog": 1 / 3}, "queue-per-replica": {"replicas": 2}},
        series=("free_mb", "admitted_events"),
        reported={"drops": {"pi@queue-per-replica": 0.0, "i-p@queue-per-replica": 0.0}},
        erratum="E1: the gains are those of the stable poles.",
    ),
    PaperFigure(
        name="xu-figure-8",
        paper=XU,
        number="Figure 8",
        title="Delay of two replicas with a CPU hog on one of them",
        finding="Round robin makes the delay large. "
        "With the load-balancing controller, there is almost no change in the delay.",
        scenario="balance",
        laws=("lqr", "round-robin", "shortest-queue"),
        metrics=("delay_mean_seconds", "delay_max_seconds", "spread"),
        series=("delay_seconds", "first_replica_share"),
    ),
    PaperFigure(
        name="xu-figure-9",
        paper=XU,
        number="Figure 9",
        title="A controller designed without the delay of its actions",
        finding="The system is unstable: the oscillations increase with time. "
        "The model did not consider that actions take effect in the next interval.",
        scenario="flow",
        laws=("pi", "adaptive"),
        metrics=("overshoot", "rms", "minimum_free_mb"),
        settings={"delay": 1, "hog": 0},
        cases={"wrong-delay": {"designed_delay": 0}, "right-delay": {"designed_delay": 1}},
        series=("free_mb", "admitted_events"),
        reported={"overshoot": {"pi@wrong-delay": (1.0, None), "pi@right-delay": (None, 1.0)}},
        erratum="E5: one sample of delay gives the printed gains a spectral radius of 1.515.",
    ),
    PaperFigure(
        name="xu-figure-9-shares",
        paper=XU,
        number="Figure 9, shares",
        title="Delay of two replicas with a load balancer that ignores the delay of its actions",
        finding="The system is unstable: oscillations increase in amplitude. The model failed to consider that control "
        "actions take place in the next time interval. A controller that is designed with the delay is stable.",
        scenario="balance",
        laws=("undelayed", "lqr"),
        metrics=("spread", "delay_mean_seconds", "delay_max_seconds"),
        settings={"delay": 2},
        series=("delay_seconds", "first_replica_share"),
    ),
)
