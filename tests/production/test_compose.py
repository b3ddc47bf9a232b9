"""What docker-compose.yml promises, seen on the file as it is shipped: up and healthy, TLS, work, faults,
scale, down and up, with nothing lost. The base images are stand-ins (stand_ins/).
"""

import json
import logging
import time
from typing import Any

from tests.production.conftest import HOST, HTTPS_PORT, ON_CONTAINERS, PATIENCE_SECONDS, until, whole
from tests.production.console import Console, effects_of
from tests.production.engine import PROJECT, Stack

logger = logging.getLogger(__name__)
pytestmark = ON_CONTAINERS


def publish(console: Console, first: int, count: int) -> set[str]:
    """The keys of the events that were acknowledged."""
    keys = [f"walk-{number}" for number in range(first, first + count)]
    acknowledged = console.publish("alert", [{"type": "walk", "key": key, "value": 1.0} for key in keys])
    assert acknowledged == count
    return set(keys)


def took_effect_once(stack: Stack, keys: set[str]) -> bool:
    counts = effects_of(stack)
    assert not [key for key in keys if counts[key] > 1], "an event took effect twice"
    return all(counts[key] == 1 for key in keys)


def snapshot_in_which(console: Console, condition, seconds: float, what: str) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        snapshot = console.snapshot()
        return snapshot if snapshot and condition(snapshot) else None

    return until(found, seconds, what)


def test_every_service_is_healthy_and_those_that_end_ended_well(stack):
    services = {each.service for each in stack.containers()}
    assert {"proxy", "web", "database", "control", "n1", "pipeline", "spark-master", "spark-worker"} <= services
    assert whole(stack)


def test_no_container_is_root_or_has_a_capability_or_a_writable_root(stack):
    names = [each.name for each in stack.containers() if each.state == "running"]
    for found in json.loads(stack.podman("inspect", *names)):
        assert found["HostConfig"]["ReadonlyRootfs"], found["Name"]
        assert not found["EffectiveCaps"], found["Name"]
        status = stack.podman("exec", found["Name"], "cat", "/proc/1/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert "0" not in fields["Uid"].split(), found["Name"]
        assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0, found["Name"]
        assert fields["NoNewPrivs"].strip() == "1", found["Name"]


def test_people_reach_it_over_tls_only_and_a_claimed_address_is_dropped(stack, console):
    def ready():
        return console.request("GET", "/readyz").status_code == 200

    until(ready, PATIENCE_SECONDS, "every part of the plant is ready")
    login = console.request("GET", "/login/")
    assert login.status_code == 200 and "max-age" in login.headers["Strict-Transport-Security"]
    plain = stack.run("curl", "--silent", "--head", "--header", f"Host: {HOST}", "http://127.0.0.1:8080/login/")
    assert f"https://{HOST}/login/" in plain
    web = stack.run("curl", "--silent", "--max-time", "3", "http://127.0.0.1:8000/healthz", check=False)
    assert web == "", "web is published beside the proxy"


def test_the_pipeline_runs_on_two_spark_workers(stack, console):
    def flows(snapshot):
        running = snapshot["pipeline"].get("state") == "running"
        return running and (snapshot["queues"]["telemetry"]["out_per_second"] or 0) > 0

    snapshot_in_which(console, flows, PATIENCE_SECONDS, "telemetry goes through the pipeline")
    workers = [each.name for each in stack.containers() if each.service == "spark-worker"]
    assert len(workers) == 2
    executors = [stack.podman("top", name, "args") for name in workers]
    assert all("CoarseGrainedExecutorBackend" in each for each in executors)


def test_a_killed_node_costs_no_event_and_takes_its_points_again(stack, console):
    stack.podman("kill", f"{PROJECT}_n2_1")
    killed_at = time.monotonic()
    snapshot_in_which(console, lambda s: s["nodes"]["n2"]["state"] == "OFFLINE", 60, "n2 is offline")
    logger.info("a killed node is offline after %.0f s", time.monotonic() - killed_at)
    keys = publish(console, 10_000, 1_000)
    stack.podman("start", f"{PROJECT}_n2_1")
    snapshot_in_which(console, lambda s: s["nodes"]["n2"]["state"] != "OFFLINE", 120, "n2 is back")
    until(lambda: took_effect_once(stack, keys), PATIENCE_SECONDS, "1,000 events are handled")


def test_a_process_that_dies_in_its_container_is_started_again(stack, console):
    before = (console.snapshot() or {"at": 0.0})["at"]
    # From the host: a signal from within does not reach a container's first process.
    (found,) = json.loads(stack.podman("inspect", f"{PROJECT}_observer_1"))
    stack.run("kill", "-9", str(found["State"]["Pid"]))
    died_at = time.monotonic()
    snapshot_in_which(console, lambda s: s["at"] > before + 5, 120, "a new observer goes on")
    logger.info("a killed observer is replaced after %.0f s", time.monotonic() - died_at)


def test_three_worker_hosts_share_the_jobs(stack, console):
    stack.compose("up", "--detach", "--scale", "worker-jobs=3", "--no-recreate")
    snapshot_in_which(console, lambda s: len(s["hosts"]) >= 3, PATIENCE_SECONDS, "three worker hosts")
    keys = publish(console, 20_000, 2_000)
    until(lambda: took_effect_once(stack, keys), PATIENCE_SECONDS, "2,000 events are handled")


def test_down_and_up_loses_nothing(stack, console):
    earlier = effects_of(stack)
    keys = publish(console, 30_000, 3_000)
    stack.compose("down", "--remove-orphans")  # podman-compose does not count what was scaled
    assert stack.containers() == []
    started = time.monotonic()
    stack.compose("up", "--detach")
    until(lambda: whole(stack), PATIENCE_SECONDS, "every service up again")
    logger.info("down and up: healthy after %.0f s", time.monotonic() - started)
    until(lambda: took_effect_once(stack, keys | set(earlier)), PATIENCE_SECONDS, "nothing was lost")


def test_a_backup_is_the_plant_again_on_empty_volumes(stack, console):
    inside, kept = "/var/lib/weir/backups/walk.backup", stack.folder / "walk.backup"
    earlier = set(effects_of(stack))
    keys = publish(console, 40_000, 3_000)
    decisions = console.ask("GET", "/ledger?rows=1")["entries"][0]["id"]
    stack.compose("run", "--rm", "setup", "python", "manage.py", "backup", inside)
    stack.podman("cp", f"{PROJECT}_web_1:{inside}", str(kept))
    kept.chmod(0o644)  # who runs in the container is nobody on this host
    stack.remove()
    stack.compose("up", "--detach", "database", "access", "control", "n1", "n2", "n3")
    restore = ("python", "manage.py", "restore", "/kept.backup")
    stack.compose("run", "--rm", "--volume", f"{kept}:/kept.backup:ro", "setup", *restore)
    stack.compose("up", "--detach")
    until(lambda: whole(stack), PATIENCE_SECONDS, "every service up again")
    until(lambda: took_effect_once(stack, keys | earlier), PATIENCE_SECONDS, "nothing was lost")
    with Console.over_tls(stack, HOST, HTTPS_PORT) as again:
        assert again.ask("GET", f"/ledger/{decisions}")["id"] == decisions
    assert json.loads(stack.manage("audit", "verify", "--json"))["sound"]
