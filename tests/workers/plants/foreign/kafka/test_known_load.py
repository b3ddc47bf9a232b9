"""Lag in seconds compared with the truth: a producer that records its send times, and a slower group."""

import threading
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.waiting import MAX_SECONDS
from tests.workers.plants.foreign.kafka.broker import tansu
from workers.plants.foreign.kafka.kafka_plant import KafkaPlant
from workers.plants.foreign.kind import PlantAddress
from workers.plants.foreign.watch import OBSERVE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
SECONDS, TICK_SECONDS = 60.0, 0.05
# Events per second of the producer, from when on; the last is a burst after a pause.
PHASES = ((0.0, 400.0), (15.0, 100.0), (30.0, 0.0), (40.0, 800.0), (45.0, 50.0))
READ_PER_SECOND = 60.0
MIN_SECONDS = 3.0  # below it, half an interval is more than a tenth
TENTH, QUARTER_SECOND = 0.1, 0.25


class Load:
    """A producer and a reader of one partition, each at its own rate, on a thread."""

    def __init__(self, broker):
        self.broker, self.sent, self.ended = broker, [], threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        settings = {"bootstrap.servers": self.broker.address, "group.id": "slow", "log_level": 0}
        reader, began, due, read = Consumer(settings), time.time(), 0.0, 0.0
        last = began
        while not self.ended.wait(TICK_SECONDS):
            now = time.time()
            due += (now - last) * [rate for since, rate in PHASES if now - began >= since][-1]
            read = min(read + (now - last) * READ_PER_SECOND, len(self.sent))
            last = now
            self.send(int(due))
            due -= int(due)
            reader.commit(offsets=[TopicPartition("known", 0, int(read))], asynchronous=False)
        reader.close()

    def send(self, count):
        if count:
            self.broker.publish("known", count)
            self.sent += [time.time()] * count  # acknowledged: the end offset has moved

    def behind(self, committed, now):
        return now - self.sent[committed] if committed < len(self.sent) else 0.0


def test_lag_in_seconds_is_within_a_tenth_of_the_truth_under_a_known_load(record_property):
    with tansu() as broker:
        broker.create("known")
        load, plant, rows = Load(broker), KafkaPlant(PlantAddress(name="events", url=broker.url)), []
        load.thread.start()
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            plant.get_topology()
            reading = plant._lags._readings[-1]
            committed = reading.groups["slow"].committed.get(("known", 0), 0) if reading.groups else 0
            if reading.groups and plant.get_details().groups["slow"].lag_seconds is not None:
                found = plant.get_details().groups["slow"].lag_seconds
                rows.append((load.behind(committed, reading.committed_at), found))
            load.ended.wait(OBSERVE_SECONDS)
        load.ended.set()
        load.thread.join(MAX_SECONDS)
    errors = [abs(found - truth) / truth for truth, found in rows if truth >= MIN_SECONDS]
    small = [abs(found - truth) for truth, found in rows if truth < MIN_SECONDS]
    figures = {
        "looks": len(rows),
        "lag_up_to_seconds": round(max(truth for truth, _ in rows), 1),
        "worst_share": round(max(errors), 4),
        "mean_share": round(sum(errors) / len(errors), 4),
        "worst_below_seconds": round(max(small, default=0.0), 3),
    }
    record_property("figures", figures)
    assert len(errors) >= 15
    assert figures["worst_share"] <= TENTH, rows
    assert figures["worst_below_seconds"] <= 2 * QUARTER_SECOND, rows
