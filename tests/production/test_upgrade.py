"""An upgrade of docker-compose.yml while events flow, as docs/start/production.md says it: from the last tag,
or from a version with a few migrations less where there is none. The base images are stand-ins (stand_ins/).
"""

import logging
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx

from tests.production.conftest import HOST, HTTPS_PORT, ON_CONTAINERS, PATIENCE_SECONDS, started, until, whole
from tests.production.console import Console, effects_of
from tests.production.engine import Stack, checkout, version_before

logger = logging.getLogger(__name__)
pytestmark = ON_CONTAINERS
BLOCK_EVENTS, BLOCKS_A_SECOND = 20, 5


@contextmanager
def published(console: Console) -> Iterator[set[str]]:
    """Keys of all events that were acknowledged; what is refused, or has no answer, is not tried again."""
    acknowledged, stop = set[str](), threading.Event()

    def publish() -> None:
        number = 0
        while not stop.wait(1 / BLOCKS_A_SECOND):
            keys = [f"walk-{number + place}" for place in range(BLOCK_EVENTS)]
            number += BLOCK_EVENTS
            with suppress(AssertionError, httpx.TransportError):
                console.publish("alert", [{"type": "walk", "key": key, "value": 1.0} for key in keys])
                acknowledged.update(keys)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()


def migrations(stack: Stack) -> set[str]:
    """Those that have been run."""
    lines = stack.manage("showmigrations", "--plan").splitlines()
    return {line.split("]  ")[1] for line in lines if line.startswith("[X]")}


def modes(console: Console) -> dict[str, str]:
    """Of each loop, but those of worker hosts: a container that is made anew is another host."""
    rows = console.ask("GET", "/loops")["loops"]
    return {row["name"]: row["mode"] for row in rows if "host" not in row["target"]}


def upgraded(stack: Stack) -> Stack:
    """In the version that is checked out here, with the settings of before; new secrets are added."""
    new = Stack(stack.folder.with_name("upgraded"), stack.environment)
    checkout(new.folder)
    shutil.copy(stack.folder / ".env", new.folder / ".env")
    new.run("bin/compose-secrets")
    for service in ("setup", "proxy"):
        new.compose("build", service, timeout_seconds=1800)
    # podman-compose makes no container anew because its image is another one.
    new.compose("up", "--detach", "--force-recreate")
    return new


def test_an_upgrade_while_events_flow_loses_and_repeats_nothing(tmp_path):
    with started(tmp_path / "weir", version_before()) as stack:
        with Console.over_tls(stack, HOST, HTTPS_PORT) as console, published(console) as acknowledged:
            until(lambda: len(acknowledged) > 500, PATIENCE_SECONDS, "events are acknowledged")
            before, taken = migrations(stack), len(acknowledged)
            loops = modes(console)
            new = upgraded(stack)
            until(lambda: whole(new), PATIENCE_SECONDS, "every service up in the new version")
            after = len(acknowledged)
            until(lambda: len(acknowledged) > after + 500, PATIENCE_SECONDS, "events go on")
            kept = modes(console)
        logger.info("%d events acknowledged while it was upgraded", after - taken)
        assert loops.items() <= kept.items()
        assert migrations(new) >= before

        def took_effect():
            counts = effects_of(new)
            assert max(counts.values()) == 1, "an event took effect twice"
            return acknowledged <= counts.keys()

        until(took_effect, PATIENCE_SECONDS, "every acknowledged event has its effect")
        new.manage("audit", "verify")  # fails where the chain is not whole
