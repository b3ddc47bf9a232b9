"""Who is told, for real: a mail server and a webhook's endpoint on free ports of this machine."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_string
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import MAX_SECONDS


@dataclass
class WorkReporter:
    """What has arrived. `answers`: the status codes of the next answers; 200 when there are none left;
    `paths`: of every request; `location`: where a redirect sends; `body`: of the answers to GET.
    """

    port: int = 0
    mails: list[Message] = field(default_factory=list)
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    location: str = ""
    body: bytes = b""


@contextmanager
def _serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(MAX_SECONDS)


class _Smtp(socketserver.StreamRequestHandler):
    """As much of RFC 5321 as smtplib speaks."""

    def handle(self) -> None:
        reporter: WorkReporter = self.server.reporter
        self._say("220 desk")
        while line := self.rfile.readline().decode().strip():
            verb = line.split(":")[0].split(" ")[0].upper()
            if verb == "DATA":
                self._say("354 go on")
                reporter.mails.append(message_from_string(self._text()))
                self._say("250 taken")
            elif verb == "RCPT" and reporter.answers:
                self._say(f"{reporter.answers.pop(0)} not here")
            elif verb == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 fine")

    def _text(self) -> str:
        lines = []
        while (line := self.rfile.readline().decode()) != ".\r\n":
            lines.append(line)
        return "".join(lines)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        reporter: WorkReporter = self.server.reporter
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = reporter.answers.pop(0) if reporter.answers else 200
        reporter.paths.append(self.path)
        if status < 300:
            reporter.posts.append((dict(self.headers), body))
        self.send_response(status)
        if reporter.location:
            self.send_header("Location", reporter.location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        reporter: WorkReporter = self.server.reporter
        reporter.paths.append(self.path)
        self.send_response(reporter.answers.pop(0) if reporter.answers else 200)
        self.send_header("Content-Length", str(len(reporter.body)))
        self.end_headers()
        self.wfile.write(reporter.body)

    def log_message(self, *arguments: Any) -> None:
        """Nobody reads it."""


@contextmanager
def mail_server() -> Iterator[WorkReporter]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Smtp)
    server.daemon_threads = True
    server.reporter = WorkReporter(server.server_address[1])
    with _serving(server):
        yield server.reporter


@contextmanager
def hook() -> Iterator[WorkReporter]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.reporter = WorkReporter(server.server_address[1])
    with _serving(server):
        yield server.reporter
