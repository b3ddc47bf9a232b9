"""The messages of an app's queues in memory: the twin of those on real brokers."""

import json
from collections import Counter

from common.errors import BadInput
from workers.plants.foreign.celery_app.message_contents import describe_message
from workers.plants.foreign.celery_app.queue_messages import build_route
from workers.plants.foreign.queue_messages import MOVE, MessagePreview, MovedMessages
from workers.plants.foreign.redaction import SHOWN


class MemoryMessages:
    """Queues with their messages, oldest first. Each message is (headers, properties, body)."""

    def __init__(self, queues=(), shown=SHOWN):
        self.queues, self.shown, self.closed = {name: [] for name in queues}, shown, 0

    def publish(self, queue, count, headers=None, kwargs=None, **properties):
        """Send tasks shop.pay(0), shop.pay(1), … to a queue."""
        for number in range(count):
            own = {"task": "shop.pay", "id": f"task-{number}", **(headers or {})}
            body = json.dumps([[number], kwargs or {}, {}]).encode()
            self.queues[queue].append((own, properties, body))

    def consume_all(self, queue):
        """Return the first argument of all messages of a queue, and empty it."""
        taken, self.queues[queue] = self.queues[queue], []
        return [json.loads(body)[0][0] for _, _, body in taken]

    def preview(self, queue, most):
        waiting = self._find(queue, "queue")
        shown = [
            describe_message(headers, properties, "application/json", body, self.shown)
            for headers, properties, body in waiting[:most]
        ]
        return MessagePreview(len(waiting), shown)

    def act(self, action, queue, most, destination=""):
        waiting = self._find(queue, "queue")
        if action == MOVE:
            self._find(destination, "destination")
        route, moved, kept = build_route(action, destination), Counter(), []
        for message in waiting[:most]:
            place = route(message[0])
            if place is None:
                kept.append(message)
                continue
            moved[place] += 1
            if place:
                self.queues[place].append(message)
        self.queues[queue] = kept + waiting[most:]
        return MovedMessages(dict(moved), len(kept))

    def close(self):
        self.closed += 1

    def _find(self, queue, field):
        if queue not in self.queues:
            raise BadInput(field, f"{queue} does not exist.")
        return self.queues[queue]
