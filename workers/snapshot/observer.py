"""Makes one snapshot a second, and publishes it: stored, as a row of history, and to the web processes; and
keeps it, if it is given a recorder.

It observes .2 s after the full second, when the agents' heartbeats (on the full second) have arrived. Two
observers may run; the one that holds the lease publishes, the other takes over within LEASE_SECONDS when it
dies.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson
import redis
from django.db import DatabaseError, close_old_connections

from queues import keys
from workers.coordination.leases import Lease
from workers.coordination.merge_patch import difference
from workers.history import metrics
from workers.history.snapshot_archive import Recorder
from workers.plants.plant import Plant, Snapshot

TOPIC = "plant"
OBSERVE_AT_SECONDS = 0.2
LEASE_SECONDS = 3.0
logger = logging.getLogger(__name__)


def until_next_observation_seconds(now: float) -> float:
    """From wall time `now` to the next .2 of a second: in (0, 1], whatever the clock did meanwhile.

    Only the fraction of the second is read off the wall clock, so a clock that jumps can neither stall nor
    storm.
    """
    return (OBSERVE_AT_SECONDS - now) % 1.0 or 1.0


def message(snapshot: Snapshot, before: Snapshot | None) -> dict[str, Any]:
    """What goes to the web processes: the snapshot, and (unless it is the first) the merge patch from the one
    before.
    """
    document = {"seq": snapshot["seq"], "at": snapshot["at"], "topic": TOPIC, "snapshot": snapshot}
    return document if before is None else {**document, "delta": difference(before, snapshot)}


class Observer:
    """Publishes what a plant shows. `step` is one check; `run` checks once a second until asked to stop."""

    def __init__(
        self,
        control: redis.Redis,
        plant: Plant,
        clock: Callable[[], float] = time.time,
        recorder: Recorder | None = None,
    ) -> None:
        self._control, self._plant, self._clock, self._recorder = control, plant, clock, recorder
        self._lease = Lease(control, "observer", LEASE_SECONDS)
        self._before: Snapshot | None = None
        self._in_trouble = False

    def step(self) -> Snapshot | None:
        """Observe, and publish when the lease is ours. Answers what was published.

        It observes also without the lease: who takes over must have watched, to know ages and rates.
        """
        snapshot = self._plant.observe()
        if not self._ours():
            return None
        snapshot["seq"] = self._before["seq"] + 1 if self._before else 1
        encoded = orjson.dumps(snapshot)
        with self._control.pipeline(transaction=True) as pipe:
            pipe.set(keys.SNAPSHOT, encoded)
            metrics.append(pipe, snapshot)
            pipe.publish(keys.LIVE, orjson.dumps(message(snapshot, self._before)))
            pipe.execute()
        self._before = snapshot
        # Last: what is live must not wait for a disk that is full or slow.
        if self._recorder is not None:
            self._recorder.add(snapshot["at"], encoded)
        return snapshot

    def run(self, stop: threading.Event) -> None:
        """Until `stop`.

        What fails (the control server or the database is away) is logged once, and tried again each second.
        """
        while not stop.wait(until_next_observation_seconds(self._clock())):
            try:
                self.step()
                self._in_trouble = False
            except Exception as error:
                # Whatever it is, the next check may find it gone; nobody is helped by an observer that ends.
                self._complain(error)
        self.close()

    def close(self) -> None:
        """Give the lease up, so that another takes over at once."""
        try:
            self._lease.release()
        except redis.RedisError:
            logger.info("The observer's lease could not be released; it runs out by itself.")

    def _ours(self) -> bool:
        if self._lease.renew():
            return True
        # Lost or never held. Who gets it goes on from what was published last, by whomever.
        if self._lease.acquire() is None:
            return False
        stored = self._control.get(keys.SNAPSHOT)
        self._before = orjson.loads(stored) if stored else None
        return True

    def _complain(self, error: Exception) -> None:
        if not self._in_trouble:
            logger.warning("The observation of the plant failed: %r", error)
        self._in_trouble = True
        if isinstance(error, DatabaseError):
            close_old_connections()
