"""Work for a real worker host that never runs dry, and a web service that serves so many requests at once."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import redis

from queues import keys
from queues.segments.segment import Segment
from queues.topology import Topology
from tests.workers.samples import fill
from workers.consumer.worker import send_workers

BLOCK = 8  # events
NUMBERS = count()


def feed(control: redis.Redis, topology: Topology, segment: Segment, blocks_a_worker: int) -> None:
    """More workers wait than can run soon, and events for them."""
    now = float(control.time()[0])
    short = 60 - int(control.zcard(keys.SUBMITTED.build("alert", "n1")))
    if short > 0:
        fill(segment, short * blocks_a_worker, BLOCK)
        ids = [f"worker-{next(NUMBERS)}" for _ in range(short)]
        send_workers(control, topology, "alert", "n1", short, ids, now)


class SlowService:
    """`capacity` may be changed while it runs; `served` counts, `most_there` is the most at once."""

    def __init__(self, capacity: int, service_seconds: float) -> None:
        self.capacity, self.service_seconds = capacity, service_seconds
        self.served, self.busy, self.there, self.most_there = 0, 0, 0, 0
        self._changed = threading.Condition()

    def serve(self) -> None:
        """One request, as long as it takes."""
        with self._changed:
            self.there += 1
            self.most_there = max(self.most_there, self.there)
            self._changed.wait_for(lambda: self.busy < self.capacity)
            self.busy += 1
        time.sleep(self.service_seconds)
        with self._changed:
            self.busy -= 1
            self.there -= 1
            self.served += 1
            self._changed.notify_all()

    def change(self, capacity: int) -> None:
        with self._changed:
            self.capacity = capacity
            self._changed.notify_all()


@contextmanager
def serving(service: SlowService) -> Iterator[str]:
    """Its URL, while it serves."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            service.serve()
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *told: object) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
