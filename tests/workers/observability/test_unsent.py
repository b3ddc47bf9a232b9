"""A collector that is down or slow delays nothing: what waits is bounded, what is lost is counted."""

import threading

from tests.waiting import MAX_SECONDS, until
from workers.observability.unsent import COMPLAIN_SECONDS, Unsent


def test_what_is_put_is_sent_in_order_and_in_batches():
    sent = []
    unsent = Unsent("spans", lambda batch: not sent.append(batch), batch=2, every_seconds=60.0)
    for number in range(5):
        unsent.put(number)
    unsent.end(MAX_SECONDS)
    assert [number for batch in sent for number in batch] == [0, 1, 2, 3, 4]
    assert max(map(len, sent)) == 2 and unsent.dropped == 0


def test_a_slow_collector_keeps_nobody_waiting_and_the_oldest_give_way():
    asked, answered, sent = threading.Event(), threading.Event(), []

    def send(batch):
        asked.set()
        answered.wait()
        sent.extend(batch)
        return True

    unsent = Unsent("spans", send, most=3, batch=1)
    unsent.put("first")
    assert asked.wait(MAX_SECONDS)
    for number in range(10):
        unsent.put(number)  # would never come back if it waited
    assert unsent.dropped == 7
    answered.set()
    unsent.end(MAX_SECONDS)
    assert sent == ["first", 7, 8, 9]


def test_what_is_not_taken_or_fails_is_counted_and_said_once_a_minute(caplog):
    now = [0.0]

    def send(batch):
        if batch == ["bad"]:
            raise OSError("connection refused: password")
        return False

    unsent = Unsent("spans", send, batch=1, monotonic=lambda: now[0])
    for number, item in enumerate(("a", "bad", "c"), 1):
        unsent.put(item)
        until(lambda number=number: unsent.dropped == number)
    now[0] = COMPLAIN_SECONDS
    unsent.put("d")
    unsent.end(MAX_SECONDS)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" spans")[0] for line in lines] == ["1", "3"]
    assert "(4 since the start)" in lines[1] and "password" not in caplog.text
