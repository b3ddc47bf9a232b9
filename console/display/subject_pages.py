"""The page of a node, a queue, or a worker host: alerts keep its name, and it may be gone."""

from django.urls import reverse

from queues.models import Node, Queue
from workers.alerts.lifecycle.models import Alert
from workers.models import Loop, Override


def find_subject_page(kind: str, name: str) -> str:
    """Return its page; the list of its kind if it has no page any more."""
    if kind == "host":
        return reverse("worker-host", args=[name]) if is_known_host(name) else reverse("workers")
    if kind == "node":
        is_there = Node.objects.filter(name=name).exists()
    else:
        is_there = Queue.objects.filter(name=name).exists()
    return reverse(kind, args=[name]) if is_there else reverse(f"{kind}s")


def is_known_host(name: str) -> bool:
    """Return whether there is something to show of a worker host that does not report.

    That is the loop of its pool (which is retired with it, but stays), a drain, or an alert.
    """
    return (
        Loop.objects.filter(target__host=name).exists()
        or Override.objects.filter(host=name).exists()
        or Alert.objects.filter(labels__host=name).exists()
    )
