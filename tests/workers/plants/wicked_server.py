"""A server that answers as no plant should: slowly, wrongly, or partly. One for every protocol.

It reads the first bytes of a connection, and answers in HTTP, Redis, AMQP, or Kafka, or with something that could be
its beginning. Its output ends: MAX_SECONDS per connection, MAX_BYTES.
"""

import json
import os
import socketserver
import threading
import time
from contextlib import contextmanager

DRIP_SECONDS, MAX_SECONDS = 0.05, 120.0
MAX_BYTES = 64 * 2**20
CHUNK = 256 * 2**10
WRONG = (None, 5, "no", [], {}, [None], {"jobs": 5}, {"jobs": [{"jid": 5}]}, {"status": "success", "data": 5})
WAYS = ("silent", "drip", "half", "garbage", "error", "huge", "wrong")


class Wicked(socketserver.BaseRequestHandler):
    def handle(self):
        self.ends = time.monotonic() + MAX_SECONDS
        try:
            while time.monotonic() < self.ends and not self.server.closing.is_set():
                if not (asked := self.request.recv(65_536)):
                    return
                if not getattr(self, self.server.way)(protocol_of(asked)):
                    return
        except OSError:
            return

    def silent(self, protocol):
        self.server.closing.wait(MAX_SECONDS)

    def drip(self, protocol):
        """Send a beginning that promises a megabyte, and then a byte now and then."""
        self.request.sendall(PROMISES[protocol])
        while time.monotonic() < self.ends and not self.server.closing.wait(DRIP_SECONDS):
            self.request.sendall(b" ")

    def half(self, protocol):
        self.request.sendall(PROMISES[protocol] + b'{"half": [')

    def garbage(self, protocol):
        self.request.sendall(os.urandom(4_096))

    def error(self, protocol):
        self.request.sendall(ERRORS[protocol])
        return protocol == "redis"

    def huge(self, protocol):
        self.request.sendall(HUGE[protocol])
        for _ in range(MAX_BYTES // CHUNK):
            if self.server.closing.is_set():
                return
            self.request.sendall(b"[" * CHUNK)

    def wrong(self, protocol):
        """Send valid answers, another one each time."""
        self.server.asked += 1
        if protocol != "http":
            self.request.sendall(WRONG_TYPES[protocol])
            return protocol == "redis"
        body = json.dumps(WRONG[self.server.asked % len(WRONG)]).encode()
        self.request.sendall(http(body, len(body)))
        return True


def http(body, length, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode() + body


def frame(length):
    return length.to_bytes(4, "big")


PROMISES = {
    "http": http(b"", 2**20),
    "redis": b"$1048576\r\n",
    "amqp": b"\x01\x00\x00" + frame(2**20),
    "kafka": frame(2**20),
}
HUGE = {
    "http": http(b"", 2**40),
    "redis": b"*1000000000\r\n",
    "amqp": b"\x01\x00\x00" + frame(2**31 - 1),
    "kafka": frame(2**31 - 1),
}
ERRORS = {
    "http": http(b'{"errors": ["boom"]}', 20, "500 Internal Server Error"),
    "redis": b"-ERR boom\r\n" * 40,
    "amqp": b"AMQP\x00\x00\x08\x00",
    "kafka": frame(8) + b"\xff" * 8,
}
WRONG_TYPES = {
    "redis": b"*1\r\n$2\r\nno\r\n" * 40,
    "amqp": b"\x01\x00\x00" + frame(8) + b"\x00\x0a\xff\xff\x00\x00\x00\x00\xce",
    "kafka": frame(12) + b"\x00" * 12,
}


def protocol_of(asked):
    if asked.startswith(b"AMQP"):
        return "amqp"
    if asked.startswith(b"*"):
        return "redis"
    is_http = asked.split(b" ", 1)[0] in (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE")
    return "http" if is_http else "kafka"


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(self, way):
        super().__init__(("127.0.0.1", 0), Wicked)
        self.way, self.asked, self.closing = way, 0, threading.Event()
        self.port = self.server_address[1]


@contextmanager
def wicked(way):
    """Yield a server that answers this way, on a port that the system chooses."""
    server = Server(way)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
