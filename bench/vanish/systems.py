"""The systems that Weir controls until it is killed. The bench reads them directly, and not through Weir."""

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery

from bench.vanish.cluster import HPAS, SCALED_OBJECTS, Cluster
from workers.plants.guard.weir_guard import HELD, PAUSED

TASK, QUEUE, PROCESSES = "bench.celery.shop.work", "celery", 3
HPA_BEFORE = {"scaleUp": {"selectPolicy": "Min"}}
Check = Callable[[], str]  # returns what differs from the owner's values, "" if nothing does


class WorkerSilent(Exception):  # noqa: N818
    """The worker did not answer a request in time, so its state is unknown."""


class StockApp:
    """A stock Celery app with one worker of PROCESSES processes."""

    def __init__(self, url: str) -> None:
        self._app: Any = Celery("check", set_as_current=False, broker=url)

    def read(self) -> Mapping[str, Any]:
        """Return the worker, its queues, the limit of the task, and its processes. Raises `WorkerSilent`."""
        inspect = self._app.control.inspect(timeout=2.0, limit=1)
        answers = inspect.active_queues(), inspect.stats(), inspect.registered("rate_limit")
        if not all(answers):
            raise WorkerSilent
        [(worker, queues)], [(_, stats)], [(_, tasks)] = (answer.items() for answer in answers)
        limits = [text.partition("rate_limit=")[2].rstrip("]") for text in tasks if text.startswith(TASK)]
        return {
            "worker": worker,
            "queues": [queue["name"] for queue in queues],
            "limit": "" if limits in ([], ["0"]) else limits[0],
            "processes": len(stats["pool"]["processes"]),
        }

    def describe_difference(self) -> str:
        """Return what differs from the owner's values; "": nothing. Raises `WorkerSilent`."""
        setup = self.read()
        wanted = {"queues": [QUEUE], "limit": "", "processes": PROCESSES}
        return ", ".join(f"{name} {setup[name]!r}" for name, value in wanted.items() if setup[name] != value)


def describe_held(k8s: Cluster) -> str:
    """Return which autoscalers differ from the owner's values."""
    behavior = k8s.get(HPAS, "hpa-score")["spec"].get("behavior") or {}
    policies = {way: (behavior.get(way) or {}).get("selectPolicy") for way in ("scaleUp", "scaleDown")}
    wrong = [] if policies == {"scaleUp": "Min", "scaleDown": None} else [f"HPA {policies}"]
    annotations = k8s.annotations(SCALED_OBJECTS, "keda-parse") | k8s.annotations(HPAS, "hpa-score")
    return ", ".join([*wrong, *(name for name in (PAUSED, HELD) if name in annotations)])
