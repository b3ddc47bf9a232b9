"""The simulated network: connections of redis-py to simulated servers.

Every connection, command, and reply takes virtual time and lets other processes run in between. A request or its reply
may be lost, because of a cut link in one direction or a fault of this one call. The client then waits as long as its
timeout, and the command may have been executed.
"""

import random
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import redis
from redis.connection import AbstractConnection

from bench.simulation import context
from bench.simulation.calls import CRASH_AFTER, CRASH_BEFORE, LOST_REPLY, LOST_REQUEST, SLOW, CallFaults
from bench.simulation.scheduler import Scheduler, VirtualProcess
from bench.simulation.servers import Session, VirtualServer, Words

USUAL_SECONDS, REFUSED_SECONDS = 0.0004, 0.001
DEFAULT_TIMEOUT_SECONDS = 5.0
Server = TypeVar("Server", bound=Any)


class Network:
    """All servers by address, the cut links, and the faults of single calls.

    cut: (host of the sender, host of the receiver).
    """

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.servers: dict[str, Any] = {}  # address → server or sentinel
        self.cut: dict[tuple[str, str], int] = {}
        self.slow: dict[str, float] = {}  # host → seconds that each of its messages takes longer
        self.faults = CallFaults(scheduler)
        self._scheduler, self._random = scheduler, random.Random(f"{seed} network")

    def add(self, server: Server) -> Server:
        self.servers[server.address] = server
        return server

    def can_pass(self, sender: str, receiver: str) -> bool:
        return not self.cut.get((sender, receiver))

    def block(self, sender: str, receiver: str) -> None:
        self.cut[sender, receiver] = self.cut.get((sender, receiver), 0) + 1

    def unblock(self, sender: str, receiver: str) -> None:
        self.cut[sender, receiver] = max(0, self.cut.get((sender, receiver), 0) - 1)

    def get_process(self) -> VirtualProcess:
        process = self._scheduler.process
        assert process is not None, "only simulated processes use the network"
        return process

    def travel(self, host: str) -> None:
        """Wait until a message of a host has arrived."""
        self._scheduler.pause(self._random.expovariate(1 / USUAL_SECONDS) + self.slow.get(host, 0.0))

    def call(self, server: VirtualServer, session: Session, commands: Sequence[Words], timeout: float) -> list[Any]:
        """Send commands and return their replies. Raises redis-py's errors."""
        process, scheduler = self.get_process(), self._scheduler
        scheduler.note(lambda: _describe(server, commands))
        fault = self.faults.meet_command(commands[0], server.host)
        kind = "" if fault is None else fault.kind
        if fault is not None:
            scheduler.note(f"fault: {kind}")
            if kind == SLOW:
                scheduler.pause(fault.seconds)
        if kind == CRASH_BEFORE:
            self.faults.crash_now()
        self.travel(process.host)
        if kind == LOST_REQUEST or not self.can_pass(process.host, server.host):
            self._time_out(timeout)
        if not server.is_up or not session.is_open:
            scheduler.pause(REFUSED_SECONDS)
            raise redis.ConnectionError(f"{server.name} closed the connection.")
        replies: list[Any] = []
        for command in commands:
            if replies and self._random.random() < 0.05:
                self.travel(server.host)
                if not session.is_open:
                    raise redis.ConnectionError(f"{server.name} closed the connection.")
            if command[0].upper() == b"WAIT":
                self._replicate(server)
            replies.append(server.execute(session, command))
        if kind == CRASH_AFTER:
            self.faults.crash_now()
        self.travel(server.host)
        if kind == LOST_REPLY or not self.can_pass(server.host, process.host):
            self._time_out(timeout)
        return replies

    def _replicate(self, server: VirtualServer) -> None:
        """Let the replicas that can be reached catch up."""
        for replica in server.replicas:
            there = replica.server
            if there.is_up and self.can_pass(server.host, there.host) and self.can_pass(there.host, server.host):
                self.travel(server.host)
                # Another server may have taken the primary's place meanwhile.
                if there.primary is server and server.is_up:
                    replica.copy_changes()

    def _time_out(self, seconds: float) -> None:
        self._scheduler.pause(seconds)
        raise redis.TimeoutError("Timeout reading from socket")


def _describe(server: VirtualServer, commands: Sequence[Words]) -> str:
    words = [word[:40].decode(errors="replace") for word in commands[0][:3]]
    if words[0] == "EVAL":
        words = ["EVAL", *(word.decode(errors="replace") for word in commands[0][3:5])]
    more = f" and {len(commands) - 1} more" if len(commands) > 1 else ""
    return f"{server.name}: {' '.join(words)}{more}".replace("\n", " ")


def install(network: Network) -> None:
    """Let every connection of redis-py in this process use this network. Call it once in a process."""

    def connect(connection: Any, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        if connection._sock is not None:
            return
        server = network.servers.get(f"{connection.host}:{connection.port}")
        process = network.get_process()
        network.travel(process.host)
        if server is None or not server.is_up:
            raise redis.ConnectionError(f"{connection.host}:{connection.port} refused the connection.")
        if not (network.can_pass(process.host, server.host) and network.can_pass(server.host, process.host)):
            context.scheduler().pause(connection.socket_connect_timeout or DEFAULT_TIMEOUT_SECONDS)
            raise redis.TimeoutError("Timeout connecting to server")
        connection._sock = server.open_session(connection.protocol)
        connection.virtual_server, connection.virtual_replies = server, []

    def disconnect(connection: Any, *arguments: Any, **options: Any) -> None:
        session, connection._sock = connection._sock, None
        if session is not None:
            session.is_open = False
            if session in session.server.sessions:
                session.server.sessions.remove(session)

    def send_packed_command(connection: Any, command: Any, check_health: bool = True) -> None:
        if connection._sock is None:
            connection.connect_check_health(check_health=False)
        commands = [_encode(connection, words) for words in _unpack(command)]
        timeout = connection.socket_timeout or DEFAULT_TIMEOUT_SECONDS
        try:
            connection.virtual_replies = network.call(connection.virtual_server, connection._sock, commands, timeout)
        except BaseException:
            connection.disconnect()
            raise

    def read_response(connection: Any, disable_decoding: bool = False, **options: Any) -> Any:
        if not connection.virtual_replies:
            connection.disconnect()
            raise redis.ConnectionError("Connection closed by server.")
        reply = connection.virtual_replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def can_read(connection: Any, timeout: float = 0) -> bool:
        return connection._sock is not None and not connection._sock.is_open

    patched: Any = AbstractConnection
    patched.connect_check_health = connect
    patched.disconnect = disconnect
    patched.send_packed_command = send_packed_command
    patched.send_command = lambda connection, *words, **options: connection.send_packed_command([words])
    patched.read_response = read_response
    patched.can_read = can_read
    patched.pack_command = lambda connection, *words: [words]
    patched.pack_commands = lambda connection, commands: list(commands)
    patched.is_connected = property(lambda connection: connection._sock is not None)
    patched.should_reconnect = lambda connection: False
    patched.__del__ = lambda connection: None


def _encode(connection: Any, words: Iterable[Any]) -> list[bytes]:
    encoded = [word if isinstance(word, bytes) else connection.encoder.encode(word) for word in words]
    return [*encoded[0].split(b" "), *encoded[1:]]


def _unpack(command: Any) -> list[Sequence[Any]]:
    """Return the commands that were packed here, or that the publishing client has packed itself (`Flush`)."""
    if command and isinstance(command[0], bytes | bytearray | memoryview):
        return _parse(b"".join(bytes(piece) for piece in command))
    return list(command)


def _parse(data: bytes) -> list[Sequence[Any]]:
    commands: list[Sequence[Any]] = []
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        words, at_word = [], end + 2
        for _ in range(int(data[at + 1 : end])):
            end = data.index(b"\r\n", at_word)
            size = int(data[at_word + 1 : end])
            words.append(data[end + 2 : end + 2 + size])
            at_word = end + 4 + size
        commands.append(words)
        at = at_word
    return commands
