"""When the load of the applications needs Spark, and when it has been low for long enough."""

import pytest

from tests.workers.pipeline.times import Times
from workers.pipeline.runtime.spark_demand import QUIET_SECONDS, WINDOW_SECONDS, SparkDemand
from workers.pipeline.status.status import ApplicationLoad


class Process:
    """A process whose applications receive events, observed every second."""

    def __init__(self) -> None:
        self.times, self.cpu_seconds = Times(), 0.0
        self.admitted = {"one": 1_000_000, "other": 0}  # from before this process
        self.demand = SparkDemand(self.times, lambda: self.cpu_seconds)
        self.reason = self.observe()

    def observe(self, busy_share: float = 0.0, tasks: int = 1) -> str | None:
        loads = {name: ApplicationLoad(events, busy_share, tasks) for name, events in self.admitted.items()}
        return self.demand.observe(loads)

    def run(self, seconds: int, events: int = 0, cpu_share: float = 0.0, **load) -> str | None:
        """Run for this time with these events per second of each application; return the last reason."""
        for _ in range(seconds):
            self.times.now += 1.0
            self.cpu_seconds += cpu_share
            self.admitted = {name: admitted + events for name, admitted in self.admitted.items()}
            self.reason = self.observe(**load)
        return self.reason


@pytest.fixture
def process() -> Process:
    return Process()


def test_few_events_need_no_spark(process):
    assert process.run(60, events=900) is None
    assert process.demand.events_per_second == pytest.approx(1_800)


def test_the_events_of_all_applications_together_need_spark_above_the_limit(process):
    assert process.run(60, events=1_100) == "2,200 events/s exceed 2,000 events/s"


def test_a_short_burst_needs_no_spark(process):
    process.run(10, events=10)
    assert process.run(1, events=4_900) is None
    assert process.run(int(WINDOW_SECONDS), events=10) is None


def test_events_from_before_an_application_was_observed_do_not_count(process):
    process.admitted["new"] = 5_000_000
    assert process.run(10) is None


def test_a_busy_process_needs_spark_whatever_the_number_of_events(process):
    assert process.run(10, events=5, cpu_share=0.4) is None
    assert process.run(10, events=5, cpu_share=0.7) == "the process used 70% of a core, more than 50%"


def test_an_operator_that_is_to_have_several_tasks_needs_spark(process):
    assert process.run(1, tasks=3) == "3 tasks are set for an operator"


@pytest.mark.parametrize("load", [{"events": 120}, {"busy_share": 0.06}, {"tasks": 2}])
def test_the_load_is_low_only_below_a_tenth_of_the_limits(process, load):
    process.run(5_000)
    assert process.demand.quiet_seconds >= QUIET_SECONDS
    process.run(10, **load)
    assert process.demand.quiet_seconds < 10
    process.run(890, events=90, busy_share=0.01)
    assert process.demand.quiet_seconds < QUIET_SECONDS
    process.run(20, events=90, busy_share=0.01)
    assert process.demand.quiet_seconds >= QUIET_SECONDS
