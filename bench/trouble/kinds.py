"""The kinds of trouble: how each comes, which words name its cause, and which action ends it."""

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import psutil

from bench.causes.kinds import KINDS
from bench.causes.shop import APPLICATION, Shop

QUEUE = "orders"
NODE, OTHER_NODE = "n2", "n1"


@dataclass(frozen=True)
class Cause:
    """words: a headline that has all of one of these tuples names the cause. action: the right button; "": none."""

    words: Sequence[tuple[str, ...]]
    action: str = ""

    def is_named_by(self, headlines: Sequence[str]) -> bool:
        texts = [text.lower() for text in headlines]
        return any(all(word in text for word in words) for text in texts for words in self.words)

    def is_right(self, button: str) -> bool:
        return bool(self.action) and re.search(self.action, button, re.IGNORECASE) is not None


Strike = Callable[[Shop, Random], AbstractContextManager[object]]


@dataclass(frozen=True)
class Trouble:
    """A kind of trouble. has_begun: whether a snapshot shows an effect of it."""

    name: str
    strike: Strike
    causes: tuple[Cause, ...]
    has_begun: Callable[[Mapping[str, Any]], bool] = lambda snapshot: True

    @property
    def needs_action(self) -> bool:
        return any(cause.action for cause in self.causes)


def _use(kind: str, queue: str = QUEUE) -> Strike:
    """A cause of `bench.causes`."""
    return lambda shop, chance: KINDS[kind](shop, queue, chance)


def _send(number: signal.Signals, find: Callable[[Shop], psutil.Process]) -> Strike:
    """A signal to a process. A process that is still stopped at the end is continued."""

    @contextmanager
    def strike(shop: Shop, chance: Random) -> Iterator[None]:
        process = find(shop)
        process.send_signal(number)
        try:
            yield
        finally:
            if process.is_running():
                process.send_signal(signal.SIGCONT)

    return strike


def _both(*strikes: Strike) -> Strike:
    @contextmanager
    def strike(shop: Shop, chance: Random) -> Iterator[None]:
        with ExitStack() as stack:
            for strike_one in strikes:
                stack.enter_context(strike_one(shop, chance))
            yield

    return strike


def _find(*words: str) -> Callable[[Shop], psutil.Process]:
    return lambda shop: shop.process_matching(*words)


def _has_more(snapshot: Mapping[str, Any], queue: str) -> bool:
    """Return whether twice the usual events arrive: the pipeline runs a new declaration after some seconds."""
    row = snapshot["queues"].get(queue, {})
    usual = row.get("usual_in_per_second")
    return usual is not None and (row.get("in_per_second") or 0.0) >= 2 * usual


SLOW = Cause([("handler", QUEUE), (QUEUE, "slot")], f"(pause consumption of|roll back the handler of) {QUEUE}")
FROZEN_AGENT = Cause([("agent", OTHER_NODE)], f"restart agent-{OTHER_NODE}")
freeze_agent = _send(signal.SIGSTOP, _find("queues.nodes.agent", OTHER_NODE))

TROUBLES = [
    Trouble(
        "burst",
        _use("a producer gone wild"),
        (Cause([(QUEUE,)], f"(pause intake of {QUEUE}|add 1 worker slot|throttle)"),),
    ),
    Trouble("slow handler", _use("a slow handler"), (SLOW,)),
    Trouble(
        "poison",
        _use("a failing handler"),
        (Cause([(QUEUE,)], f"(pause consumption of|roll back the handler of|open the dead letters of) {QUEUE}"),),
    ),
    Trouble("killed node server", _send(signal.SIGKILL, lambda shop: shop.node_server(NODE)), (Cause([(NODE,)]),)),
    Trouble("frozen agent", freeze_agent, (FROZEN_AGENT,)),
    Trouble(
        "killed pipeline",
        _send(signal.SIGKILL, _find("workers.pipeline.runtime.application")),
        (Cause([("pipeline",), (APPLICATION,)]),),
    ),
    Trouble(
        "frozen observer",
        _send(signal.SIGSTOP, _find("manage.py", "observe")),
        (Cause([("observer", "suspended")], "restart observer"),),
    ),
    Trouble(
        "killed web", _send(signal.SIGKILL, _find("uvicorn", "console.asgi")), (Cause([("web",), ("disconnected",)]),)
    ),
    Trouble(
        "bad declaration",
        _use("a bad declaration", "mail"),
        (Cause([(APPLICATION,), ("mail",)], "(restore the declaration|pause (intake|consumption) of mail)"),),
        lambda snapshot: _has_more(snapshot, "mail"),
    ),
    Trouble(
        "hot key",
        _use("a hot key"),
        (Cause([(QUEUE,)], f"(pause intake of {QUEUE}|relieve|add 1 worker slot)"),),
        lambda snapshot: _has_more(snapshot, QUEUE),
    ),
    Trouble("two at once", _both(_use("a slow handler"), freeze_agent), (SLOW, FROZEN_AGENT)),
]
