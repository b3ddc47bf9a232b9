"""Whose workers run first while slots are short: on a real worker host with one slot."""

from dataclasses import replace

import pytest

from queues import keys
from queues.events.block import BlockIds, cut
from queues.segments.segment import Segment
from tests.servers import Server
from tests.waiting import until
from tests.workers.samples import batch_of
from workers.consumer.worker import send_workers

BLOCK = 8


def published(node: Server, queue: str, blocks: int) -> None:
    events = batch_of(BLOCK * blocks, source=[queue] * (BLOCK * blocks))
    Segment(node.client(), queue).publish(cut(events, BlockIds(), BLOCK))


@pytest.mark.slow
def test_workers_that_go_ahead_run_first_then_by_the_priority_of_their_queue(control, host, nodes, plant_topology):
    handler = "python:tests.workers.consumer.handler_samples.note_source"
    given = {"alert": 3, "process": 7}
    queues = {
        name: replace(plant_topology.queue(name), priority=priority, handler=handler, events_per_worker=BLOCK)
        for name, priority in given.items()
    }
    topology = replace(plant_topology, queues={**plant_topology.queues, **queues})
    control.set(keys.TOPOLOGY, topology.to_json())
    for name in given:
        published(nodes["n1"], name, 3)
    now = float(control.time()[0])
    # The slot is free only after all were sent; the one that goes ahead was sent last.
    send_workers(control, topology, "process", "n1", 2, ["p1", "p2"], now)
    send_workers(control, topology, "alert", "n1", 3, ["a1", "a2", "a3"], now)
    send_workers(control, topology, "process", "n1", 1, ["p0"], now, ahead=1)
    host.start()
    order = host.data / "order"
    seen = until(lambda: order.exists() and len(found := order.read_text().split()) == 6 and found, 150)
    assert seen == ["process", "alert", "alert", "alert", "process", "process"]
