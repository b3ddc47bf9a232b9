"""A stock Celery app under a square wave of load: sized by Weir, by its own --autoscale, and not at all.

Every worker is started from a plain `celery worker` and gets the same tasks at the same instants, each from a broker's
database (virtual host) of its own, all in the same run:

    weir          started with 2 processes, attached and steered by `parallelism_joint`; nothing else is done
    fixed n       n processes
    autoscale n   Celery's --autoscale=n,1

A task's waiting is from being sent to being begun, on one clock; worker-seconds are the processes there are, by the
operating system, over the time of the load. The best fixed size is the smallest whose 95th percentile of waiting is at
most OBJECTIVE_SECONDS; its owner would give --autoscale the same number. "At equal cost" compares with the --autoscale
that takes the fewest worker-seconds, but at least as many as Weir. `--seconds` is how long the load takes, at least
MIN_SECONDS.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.celery.brokers import rabbitmq, valkey
from bench.celery.load import square_wave
from bench.celery.outcome import Outcome, figures
from bench.celery.stock_workers import Rival, StockWorker, drive
from bench.celery.watched import Attached

MIN_SECONDS = 920.0
BASELINES = (
    Rival("weir", ("--concurrency", "2")),
    Rival("fixed 8", ("--concurrency", "8")),
    Rival("fixed 9", ("--concurrency", "9")),
    Rival("fixed 10", ("--concurrency", "10")),
    Rival("autoscale 8", ("--autoscale", "8,1")),
    Rival("autoscale 9", ("--autoscale", "9,1")),
    Rival("autoscale 10", ("--autoscale", "10,1")),
    Rival("autoscale 16", ("--autoscale", "16,1")),
)


def run(seconds: float) -> dict[str, Any]:
    """On Valkey and on RabbitMQ at once, with the same load."""
    load = square_wave(max(seconds, MIN_SECONDS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-celery-")))
        names = [baseline.name for baseline in BASELINES]
        brokers = {
            "valkey": stack.enter_context(valkey(names)),
            "rabbitmq": stack.enter_context(rabbitmq(names, folder / "rabbitmq")),
        }
        workers = {
            (broker, baseline.name): stack.enter_context(StockWorker(baseline, url[baseline.name], folder / broker))
            for broker, url in brokers.items()
            for baseline in BASELINES
        }
        attached = stack.enter_context(Attached({name: url["weir"] for name, url in brokers.items()}, folder))
        attached_seconds = attached.wait_until_seen()
        processes = drive(list(workers.values()), load)
        outcomes = {
            (broker, name): Outcome.build(worker, load, processes[worker.pid])
            for (broker, name), worker in workers.items()
        }
        return figures(outcomes, attached_seconds, list(brokers))
