"""The page of a node, a queue or a worker host: alerts keep its name, and it may be gone."""

from django.urls import reverse

from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.models import Loop, Override


def page_of(kind: str, name: str) -> str:
    """Its page; the list of its kind where nothing is shown of it any more."""
    if kind == "host":
        return reverse("worker-host", args=[name]) if is_known_host(name) else reverse("workers")
    if kind == "node":
        is_there = Node.objects.filter(name=name).exists()
    else:
        is_there = Queue.objects.filter(name=name).exists()
    return reverse(kind, args=[name]) if is_there else reverse(f"{kind}s")


def is_known_host(name: str) -> bool:
    """Whether there is something to say of a worker host that does not report: by the loop of its pool
    (retired with it, it stays), by a drain, or by an alert.
    """
    return (
        Loop.objects.filter(target__host=name).exists()
        or Override.objects.filter(host=name).exists()
        or Alert.objects.filter(labels__host=name).exists()
    )
