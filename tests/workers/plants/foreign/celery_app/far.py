"""A Celery app in this process: its workers answer remote control as version 5.7 does.

Its broker is a set of numbers, one per queue. Time advances by `run`.
"""

import threading

from workers.plants.foreign.celery_app.broker import QueueLength
from workers.plants.foreign.celery_app.events import TaskEvents
from workers.plants.foreign.celery_app.leases import AppLeases, MemoryLeases
from workers.plants.foreign.celery_app.plant import CeleryPlant
from workers.plants.foreign.celery_app.remote_control import RemoteControl
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.leases import TasksBefore
from workers.plants.foreign.stored_notes import ExpiringNotes, StoredNotes

FORKS_EACH_SECONDS = 5.0


class FarListener:
    def __init__(self):
        self.lock, self.events, self.error, self.closed = threading.Lock(), TaskEvents(), None, False
        self.gaps, self.history = 0, None

    def start(self):
        pass

    def count_workers(self):
        return None

    def close(self):
        self.closed = True


class FakeCelery:
    """A fake app.

    processes: worker → number of its processes; a pool grows at its next maintenance, and shrinks at once by its idle
    processes. late: command → workers that do not answer it.
    """

    def __init__(self, processes, queues=("celery",)):
        self.processes, self.queues = dict(processes), dict.fromkeys(queues, 0)
        self.wanted = dict(processes)
        self.busy = dict.fromkeys(processes, 0)
        self.begun = dict.fromkeys(processes, 0)
        self.stats, self.events_on, self.events_off = {}, [], []
        self.sending, self.noted_workers = set(), StoredNotes()  # lives: (worker, pid)
        self.listener, self.resumed = FarListener(), StoredNotes()
        self.now, self.orders, self.silent, self.pid = 100.0, 0, False, 7
        self.noted = ExpiringNotes(monotonic=lambda: self.now)
        self.unacknowledged_now = 0
        self.asked, self.reserved = [], []
        self.paused, self.ever_paused, self.revoked = set(), set(), []
        self.limits = {"shop.work": "", "shop.mail": "10/m"}
        self.late, self.limited = {}, []
        self.known, self.paused_by_people, self.sent = None, set(), []
        self.store, self.sizes, self.in_force = MemoryLeases(), TasksBefore(lambda: self.now), list

    def plant(self, **options):
        address = PlantAddress(name="shop", url="redis://broker.example", options=options)
        control = RemoteControl("shop", self.broadcast)
        return CeleryPlant(
            address,
            control,
            self,
            self.listener,
            orders=self.noted,
            resumed=self.resumed,
            asked=self.noted_workers,
            known=self.known,
            paused=lambda: self.paused_by_people,
            leases=AppLeases(self.store, self.sizes, self.noted_workers, lambda: self.in_force(), lambda: self.now),
            send=self.receive,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            sleep=self.run,
        )

    def receive(self, request):
        """Take a task that was sent, as the broker does."""
        self.sent.append(request)
        self.queues[request.queue] += 1

    def run(self, seconds):
        self.now += seconds
        if seconds >= FORKS_EACH_SECONDS:
            for worker in self.processes:
                self.processes[worker] = self.wanted[worker]
            for worker in self.processes:
                self.noted.forget(worker)

    def expire_lease(self):
        """End the lease, as a guard or a broker does once nobody renews it."""
        for item in self.store.expire():
            if "pool" in item:
                self.processes[item["pool"]] = self.wanted[item["pool"]] = item["processes"]
            for worker in item.get("workers", ()):
                self.answer(item["method"], worker, **item["arguments"])

    def reconnect(self):
        """Reconnect as Celery before 5.7 does: a queue that was ever paused is left alone."""
        self.paused |= self.ever_paused

    # Methods of `celery.app.control.Control`

    def broadcast(self, command, arguments, destination, reply, timeout, limit):
        assert reply and timeout > 0
        self.asked.append(command)
        if self.silent:
            return []
        reached = [name for name in self.processes if destination is None or name in destination]
        reached = [name for name in reached if name not in self.late.get(command, ())]
        return [{name: self.answer(command, name, **arguments)} for name in reached][:limit]

    def answer(self, command, worker, n=0, **more):
        if command == "stats":
            pool = {
                "implementation": "celery.concurrency.prefork:TaskPool",
                "max-concurrency": 2,
                "processes": list(range(self.processes[worker])),
            }
            total = {"shop.work": self.begun.get(worker, 0)}
            return {"pid": self.pid, "pool": pool, "total": total, "prefetch_count": 8, **self.stats}
        if command == "active_queues":
            return [{"name": name} for name in self.queues if (worker, name) not in self.paused]
        if command == "active":
            return [{"id": str(number)} for number in range(self.busy[worker])]
        if command == "reserved":
            return self.reserved
        if command == "registered":
            return [f"{name} [rate_limit={limit}]" if limit else name for name, limit in self.limits.items()]
        if command in ("cancel_consumer", "add_consumer"):
            self.ever_paused |= {(worker, more["queue"])} if command == "cancel_consumer" else set()
            change = self.paused.add if command == "cancel_consumer" else self.paused.discard
            change((worker, more["queue"]))
            return {"ok": "done"}
        if command == "rate_limit":
            self.limits[more["task_name"]] = more["rate_limit"]
            self.limited.append((worker, more["rate_limit"]))
            return {"ok": "new rate limit set successfully"}
        if command == "revoke":
            self.revoked.append((worker, more["task_id"], more["terminate"]))
            return {"ok": "tasks flagged as revoked"}
        if command == "enable_events":
            self.events_on.append(worker)
            already = "already " if (worker, self.pid) in self.sending else ""
            self.sending.add((worker, self.pid))
            return {"ok": f"task events {already}enabled"}
        if command == "disable_events":
            self.events_off.append(worker)
            self.sending.discard((worker, self.pid))
            return {"ok": "task events disabled"}
        return self.resize(worker, command, n)

    def resize(self, worker, command, n):
        self.orders += 1
        if command == "pool_grow":
            self.wanted[worker] += n
            return {"ok": "pool will grow"}
        assert command == "pool_shrink"
        if n > self.processes[worker] - self.busy[worker]:
            return {"error": 'ValueError("Can\'t shrink pool. All processes busy!")'}
        self.wanted[worker] -= n
        self.processes[worker] -= n
        return {"ok": "pool will shrink"}

    # Methods of a broker

    def read_queue_lengths(self, queues):
        return {name: QueueLength(self.queues[name]) for name in queues if name in self.queues}

    def count_unacknowledged(self):
        return self.unacknowledged_now

    def list_missing(self):
        return []

    def close(self):
        pass
