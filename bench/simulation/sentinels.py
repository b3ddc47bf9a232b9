"""Simulated sentinels: they watch a replicated control server, and promote a replica if a majority misses the primary.

Each sentinel knows the primary by its own configuration, and gets a newer one from the others as soon as it can reach
them. A server that was the primary before stays one until a sentinel with a newer configuration reaches it; meanwhile
it accepts what clients send to it, and loses that when it follows the new primary.
"""

from collections.abc import Sequence
from typing import Any

from bench.simulation.network import Network
from bench.simulation.scheduler import Scheduler
from bench.simulation.servers import Replica, VirtualServer, Words

NAME = "control"
PORT = 26379
DOWN_SECONDS = 3.0  # as docs/start/production.md configures it
STEP_SECONDS, REPLICATE_SECONDS, FAILOVER_SECONDS = 0.5, 0.1, 1.0


class VirtualSentinel:
    """A sentinel. epoch: of its configuration, the greater the newer."""

    def __init__(self, host: str, primary: VirtualServer) -> None:
        self.host, self.port, self.name = host, PORT, f"sentinel-{host}"
        self.is_up, self.clock_offset = True, 0.0
        self.primary, self.epoch, self.seen_at = primary, 0, 0.0
        self.is_failing_over = False
        self.sessions: list[_SentinelSession] = []

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def open_session(self, protocol: int = 2) -> Any:
        session = _SentinelSession(self)
        self.sessions.append(session)
        return session

    def execute(self, session: object, words: Words) -> Any:
        """Answer a command of a client."""
        if words[0].upper() != b"SENTINEL":
            return b"OK"
        state = {
            b"name": NAME.encode(),
            b"ip": self.primary.host.encode(),
            b"port": b"%d" % self.primary.port,
            b"flags": b"master,failover_in_progress" if self.is_failing_over else b"master",
            b"config-epoch": b"%d" % self.epoch,
            b"num-other-sentinels": b"2",
        }
        return [state] if words[1].upper() == b"MASTERS" else state


class _SentinelSession:
    def __init__(self, server: VirtualSentinel) -> None:
        self.server, self.is_open = server, True


class SentinelGroup:
    """The sentinels of the control server, and the replication between its servers."""

    def __init__(self, scheduler: Scheduler, network: Network, servers: Sequence[VirtualServer]) -> None:
        self._scheduler, self._network, self.servers = scheduler, network, list(servers)
        self.sentinels = [VirtualSentinel(server.host, servers[0]) for server in servers]
        self.failovers = 0
        for server in servers[1:]:
            self._follow(server, servers[0])
        scheduler.call_at(scheduler.now, self._step)
        scheduler.call_at(scheduler.now, self._replicate)

    @property
    def url(self) -> str:
        hosts = ",".join(sentinel.address for sentinel in self.sentinels)
        return f"sentinel://{hosts}/{NAME}/0"

    @property
    def primary(self) -> VirtualServer:
        """Return the primary by the newest configuration."""
        return max(self.sentinels, key=lambda sentinel: sentinel.epoch).primary

    def _reaches(self, sender: str, receiver: str) -> bool:
        return sender == receiver or (
            self._network.can_pass(sender, receiver) and self._network.can_pass(receiver, sender)
        )

    def _follow(self, server: VirtualServer, primary: VirtualServer) -> None:
        """Let a server follow a primary. Sentinels close the connections to a server that they change."""
        for other in self.servers:
            other.replicas = [replica for replica in other.replicas if replica.server is not server]
        server.close_sessions()
        primary.replicas.append(Replica(server, primary))

    def _replicate(self) -> None:
        for server in self.servers:
            for replica in server.replicas:
                there = replica.server
                if server.is_up and there.is_up and self._reaches(server.host, there.host):
                    replica.copy_changes()
        self._scheduler.call_at(self._scheduler.now + REPLICATE_SECONDS, self._replicate)

    def _step(self) -> None:
        now = self._scheduler.now
        for sentinel in self.sentinels:
            for other in self.sentinels:
                if other.epoch > sentinel.epoch and self._reaches(sentinel.host, other.host):
                    sentinel.primary, sentinel.epoch, sentinel.seen_at = other.primary, other.epoch, now
            if sentinel.primary.is_up and self._reaches(sentinel.host, sentinel.primary.host):
                sentinel.seen_at = now
            self._correct_servers(sentinel)
        self._fail_over()
        self._scheduler.call_at(now + STEP_SECONDS, self._step)

    def _correct_servers(self, sentinel: VirtualSentinel) -> None:
        """Let each server that the sentinel reaches follow the primary that it knows, if none knows a newer one."""
        if sentinel.epoch < max(other.epoch for other in self.sentinels):
            return
        waits_for = 0
        for server in self.servers:
            if server is sentinel.primary or server.primary is sentinel.primary:
                continue
            if server.is_up and self._reaches(sentinel.host, server.host) and sentinel.primary.is_up:
                self._scheduler.note(f"{server.name} follows {sentinel.primary.name}")
                self._follow(server, sentinel.primary)
            else:
                waits_for += 1
        sentinel.is_failing_over = sentinel.is_failing_over and waits_for > 0

    def _fail_over(self) -> None:
        """Promote the replica with the newest data, if a majority of sentinels misses the primary."""
        now = self._scheduler.now
        for leader in self.sentinels:
            peers = [other for other in self.sentinels if self._reaches(leader.host, other.host)]
            missing = [other for other in peers if now - other.seen_at >= DOWN_SECONDS and other.epoch == leader.epoch]
            if leader not in missing or 2 * len(missing) <= len(self.sentinels):
                continue
            candidates = [
                server
                for server in self.servers
                if server is not leader.primary and server.is_up and self._reaches(leader.host, server.host)
            ]
            if not candidates:
                continue
            chosen = max(candidates, key=lambda server: server.writes)
            self._scheduler.note(f"{leader.name} promotes {chosen.name}")
            self.failovers += 1
            for other in self.servers:
                other.replicas = [replica for replica in other.replicas if replica.server is not chosen]
            chosen.primary = None
            chosen.close_sessions()
            leader.primary, leader.epoch, leader.seen_at = chosen, leader.epoch + 1, now
            leader.is_failing_over = True
            return
