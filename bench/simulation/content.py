"""The initial content of the simulated installation's database."""

from datetime import UTC, datetime

from django.contrib.auth.models import User

from bench.simulation.names import BROKER_HOST, BROKER_PORT, NODES, PERSON, QUEUES, RECEIVER, SHOP
from bench.simulation.run import STARTS_AT
from queues import points
from queues.models import Container, Node, Queue, TopologyRevision
from workers.alerts.lifecycle.models import Receiver
from workers.alerts.rules.rules import ensure_rules
from workers.plants.models import RegisteredPlant


def create_content() -> None:
    """Create nodes, queues, a person, a receiver of alerts, and the shipped alert rules."""
    now = datetime.fromtimestamp(STARTS_AT, UTC)
    User.objects.create(username=PERSON)
    share = points.share(list(NODES))
    for name in NODES:
        Node.objects.create(name=name, url=f"redis://{name}:7001/0", capacity_events_per_second=1_000.0)
    for name in QUEUES:
        queue = Queue.objects.create(name=name, kind="jobs", handler="noop", minimum_containers=2)
        for node in Node.objects.all():
            Container.objects.create(queue=queue, node=node, points=share[node.name])
    TopologyRevision.objects.create(pk=1, number=1)
    Receiver.objects.create(
        name=RECEIVER,
        channel="webhook",
        settings={"url": "http://desk/"},
        severities=["critical", "warning"],
        created_at=now,
    )
    RegisteredPlant.objects.create(
        name=SHOP, kind="celery", url=f"redis://{BROKER_HOST}:{BROKER_PORT}/0", created_at=now
    )
    ensure_rules(now)
