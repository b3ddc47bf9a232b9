"""The processes of a plant, declared once: the supervisor runs them here, docker-compose.yml elsewhere.

A command is given without its interpreter's path, so that it is the same in both places.
"""

from dataclasses import dataclass

from workers.pipeline.declaration.replicas import get_process_name, list_replica_names

WEB_OPTIONS = (
    # Deadlines and limits for connections.
    "--http",
    "console.connections.web_protocols:HttpProtocol",
    "--ws",
    "console.connections.web_protocols:SocketProtocol",
    "--ws-per-message-deflate",
    "false",
    "--no-proxy-headers",  # console.web.proxies trusts those of trusted proxies only
    # A socket sends {"ask": "snapshot"} at most; the rest of a longer frame is not read.
    "--ws-max-size",
    "4096",
    # No version in answers to strangers.
    "--no-server-header",
    "--no-access-log",
    "--log-level",
    "warning",
)
PIPELINE_COMMAND = ("python", "-m", "workers.pipeline.runtime.application")
WORKER_OPTIONS = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")


@dataclass(frozen=True)
class Process:
    """A supervised process.

    stop_seconds: time to end before it is killed. first: people and loops wait for it, so it has priority over the
    plant's work when all cores are busy. once: it may end; only after an error it is restarted.
    """

    name: str
    command: tuple[str, ...]
    stop_seconds: int = 10
    first: bool = False
    once: bool = False


# Ends faults that an earlier run has left, and runs the drills that are due. Only on the plant of ./run.
DRILL = Process("drill", ("python", "manage.py", "drill"), once=True)

# The producers of the demo shop (./run --demo).
SHOP = Process("shop", ("python", "manage.py", "shop"))


def build_worker_process(role: str, *options: str, first: bool = False) -> Process:
    command = ("celery", "--app", "console.celery", "worker", "--queues", role, "--hostname", f"{role}@%h")
    return Process(f"worker-{role}", (*command, *options, *WORKER_OPTIONS), stop_seconds=12, first=first)


def build_agent_process(node: str) -> Process:
    return Process(f"agent-{node}", ("python", "-m", "queues.nodes.agent", node), first=True)


def build_web_process(host: str, port: int) -> Process:
    address = ("--host", host, "--port", str(port))
    return Process("web", ("uvicorn", "console.asgi:application", *address, *WEB_OPTIONS), first=True)


def build_replica_process(replica: str) -> Process:
    """Return the process of one replica of the pipeline's applications."""
    return Process(get_process_name(replica), (*PIPELINE_COMMAND, "--replica", replica), stop_seconds=12)


def list_plant_processes(
    nodes: list[str], job_slots: int, host: str, port: int, replica_processes: int = 0, has_beat: bool = True
) -> list[Process]:
    """Return everything but the Redis servers, in the order of starting.

    nodes: the nodes whose agents are separate processes. has_beat: whether the beat is a separate process.
    """
    beat = Process("beat", ("celery", "--app", "console.beat", "beat", "--loglevel", "WARNING"), first=True)
    return [
        build_web_process(host, port),
        *map(build_agent_process, nodes),
        Process("observer", ("python", "manage.py", "observe"), first=True),
        # Separate: it reports when the others die, and a mail server that hangs delays no tick.
        Process("alerter", ("python", "manage.py", "alert"), first=True),
        # Ticks are short and mostly wait for the database: threads cost one process, not three.
        build_worker_process("control", "--pool", "threads", "--concurrency", "2", first=True),
        build_worker_process("jobs", "--pool", "prefork", "--concurrency", str(job_slots)),
        build_worker_process("spark", "--pool", "prefork", "--concurrency", "1"),
        *([beat] if has_beat else []),
        Process("telemetry", ("python", "-m", "queues.publishing.telemetry")),
        Process("pipeline", PIPELINE_COMMAND, stop_seconds=12),
        *map(build_replica_process, list_replica_names(replica_processes)),
    ]
