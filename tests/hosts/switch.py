"""The network between hosts, as a process: it forwards packets between their TUN devices.

    python -m tests.hosts.switch NAME=FD …

Each line on standard input is JSON, {"from", "to", "cut", "delay_seconds", "loss"}, and holds from then on, in this
direction; a line is answered by "ok". Not every kernel has netem, so what a link does to a packet is done here: to real
packets of real TCP, which repeats what was lost.
"""

import heapq
import json
import os
import random
import select
import sys
import time
from dataclasses import dataclass

PACKET_BYTES = 65536
HELD_PACKETS = 20_000  # of a slow link; beyond that it drops, as any queue does


@dataclass(frozen=True)
class Link:
    """What happens to packets in one direction."""

    cut: bool = False
    delay_seconds: float = 0.0
    loss: float = 0.0


class Switch:
    """Hosts by the last byte of their address: the place of their descriptor, from 1."""

    def __init__(self, hosts: dict[str, int], chance: random.Random) -> None:
        self.names = list(hosts)
        self.descriptors = list(hosts.values())
        self.chance = chance
        self.links: dict[tuple[str, str], Link] = {}
        self.held: list[tuple[float, int, int, bytes]] = []
        self.number = 0

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            wait = max(0.0, self.held[0][0] - time.monotonic()) if self.held else 1.0
            ready, _, _ = select.select([0, *self.descriptors], [], [], wait)
            self._deliver_due()
            for descriptor in ready:
                if descriptor == 0:
                    line = sys.stdin.readline()
                    if not line:
                        return
                    self._told(json.loads(line))
                else:
                    self._forward(self.descriptors.index(descriptor), os.read(descriptor, PACKET_BYTES))

    def _told(self, said: dict) -> None:
        source, target = said.pop("from"), said.pop("to")
        self.links[source, target] = Link(**said)
        sys.stdout.write("ok\n")
        sys.stdout.flush()

    def _forward(self, source: int, packet: bytes) -> None:
        target = packet[19] - 1  # the last byte of an IPv4 packet's destination
        if packet[0] >> 4 != 4 or not 0 <= target < len(self.names):
            return
        link = self.links.get((self.names[source], self.names[target]), Link())
        if link.cut or self.chance.random() < link.loss:
            return
        if not link.delay_seconds:
            self._send(target, packet)
        elif len(self.held) < HELD_PACKETS:
            self.number += 1
            heapq.heappush(self.held, (time.monotonic() + link.delay_seconds, self.number, target, packet))

    def _deliver_due(self) -> None:
        while self.held and self.held[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self.held)
            self._send(target, packet)

    def _send(self, target: int, packet: bytes) -> None:
        try:
            os.write(self.descriptors[target], packet)
        except OSError:
            return  # its device is down: the packet is lost


if __name__ == "__main__":
    named = (argument.split("=") for argument in sys.argv[1:])
    Switch({name: int(descriptor) for name, descriptor in named}, random.Random(7)).run()
