"""All keys, streams, and channels on a server: name, type, writers, readers, and content.

    control.get(keys.SNAPSHOT)
    control.set(keys.POOL.build(host), order)

A name with parts in braces is never used as it is: `build` fills them in, and `pattern` has "*" for each, for SCAN and
for the access of a role. Roles are those of `queues.nodes.server_roles`. Other processes and other versions know these
names: a released name never changes.
"""

import re
from typing import Literal

Kind = Literal["string", "hash", "list", "set", "sorted set", "stream", "channel", "prefix"]
ROLES = ("web", "workers", "observer", "agent", "telemetry", "pipeline")
_PART = re.compile(r"\{\w+\}")


class Key(str):
    """A name.

    flow: roles that write it → roles that read it. on_nodes: it is on a queue's nodes, not on the control server. A
    "prefix" is the start of the names of a library's own keys.
    """

    kind: Kind
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    holds: str
    on_nodes: bool
    _template: str

    def __new__(cls, name: str, kind: Kind, flow: str, holds: str, *, on_nodes: bool = False) -> "Key":
        key = super().__new__(cls, name)
        key.kind, key.holds, key.on_nodes = kind, holds, on_nodes
        key.writers, key.readers = (ROLES if end == "all" else tuple(end.split()) for end in flow.split(" → "))
        key._template = _PART.sub("{}", name)
        return key

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # copied, or in another process, it is the plain name

    @property
    def pattern(self) -> str:
        """Return the pattern that matches every name."""
        return self._template.replace("{}", "*") + ("*" if self.kind == "prefix" else "")

    def build(self, *parts: str | int) -> str:
        """Return the name with these parts, in their order. Raises `TypeError` if there are more or fewer."""
        if len(parts) != self._template.count("{}"):
            raise TypeError(f"{self} takes {self._template.count('{}')} parts, not {len(parts)}.")
        return self._template.format(*parts)


# The plant
TOPOLOGY = Key(
    "weir:topology", "string", "web workers → all", "JSON, projection of the database: `queues.topology.Topology`"
)
RETURNED = Key(
    "weir:returned",
    "hash",
    "workers → workers",
    "node → since when (s) it sends heartbeats again: `workers.placement.recovery`",
)
HEARTBEATS = Key(
    "weir:heartbeats", "hash", "agent → agent observer telemetry pipeline", "node → JSON heartbeat of its agent"
)
PRODUCERS = Key(
    "weir:producers",
    "hash",
    "web telemetry pipeline observer → web telemetry pipeline observer workers",
    "producer|queue → JSON {events, blocks, rejected, rerouted, at, reported}, cumulative, every second",
)
PRODUCER_SESSIONS = Key(
    "weir:producer-sessions:{queue}",
    "hash",
    "web workers → pipeline",
    "producer → its newest session, if it publishes in order: `queues.publishing.producer_order`",
)
INSTALLATION = Key(
    "weir:installation",
    "string",
    "web workers observer → web workers observer",
    "ID of this Weir, by which others identify its holdings: `workers.plants.foreign.leases`",
)
SNAPSHOT = Key("weir:snapshot", "string", "observer → observer web workers", "JSON, the newest plant snapshot")
LIVE = Key("weir:live", "channel", "observer → web", "JSON, every snapshot and its delta")
PLANT_INTERVENTIONS = Key(
    "weir:plant_interventions:{plant}",
    "hash",
    "web workers observer → web workers observer",
    "actions of people at another plant → JSON: `workers.plants.foreign.interventions`",
)
PAUSED_TOGETHER = Key(
    "weir:paused-together:{plant}",
    "string",
    "web → web",
    "JSON: the pause of all queues of a plant, until its end: `console.actions.queues.pause_all`",
)
METRICS = Key("weir:metrics", "stream", "observer → web workers", "a row of numbers per second, for the last two hours")
METRIC_SERIES = Key("weir:metric-series", "hash", "observer → web workers", "digest → JSON: the series of rows")
HOLDER = Key(
    "weir:holder:{plant}",
    "string",
    "web → web observer",
    "JSON {holder, until}: who controls the plant's tasks from outside",
)

# A queue on a node
SEGMENT = Key(
    "weir:{queue}:segment",
    "stream",
    "web telemetry pipeline workers → all",
    "an entry per block: `i` block ID, `n` events, `t` newest event time (µs), `d` batch, `c` its checksum",
    on_nodes=True,
)
COUNTERS = Key(
    "weir:{queue}:counters",
    "hash",
    "web telemetry pipeline workers → all",
    "cumulative counts: `queues.segments.gauge.COUNTERS`",
    on_nodes=True,
)
RETRY = Key(
    "weir:{queue}:retry",
    "sorted set",
    "workers → workers agent observer",
    "entry ID → due time (ms, the node's clock), for blocks whose handling failed",
    on_nodes=True,
)
DEAD = Key(
    "weir:{queue}:dead",
    "stream",
    "workers pipeline web → workers web agent observer",
    "dead letters: `e` the batch, `c`, `error`, `n`, `t`, `tries`, `worker`, `block`, `kind`; changed `since`, `fixes`",
    on_nodes=True,
)
LEAVING = Key(
    "weir:{queue}:leaving",
    "hash",
    "workers → workers agent observer",
    "entry ID → the node it is being transferred to",
    on_nodes=True,
)
LEAVING_LETTERS = Key(
    "weir:{queue}:leaving-letters",
    "hash",
    "workers → workers agent observer",
    "ID of a dead letter → the node it is being transferred to",
    on_nodes=True,
)
RECEIVED = Key(
    "weir:{queue}:received",
    "sorted set",
    "web workers pipeline → workers pipeline",
    "source, entry ID and block ID → when it was transferred here (ms); damaged dead letters that were counted",
    on_nodes=True,
)
PROMOTIONS = Key(
    "weir:promotions",
    "string",
    "agent workers → agent workers",
    "of a node with a replica: how often its servers have changed places (`queues.nodes.replication`)",
    on_nodes=True,
)
LANES = Key(
    "weir:{queue}:lanes",
    "sorted set",
    "workers → workers agent observer",
    "entry ID → lane, for blocks of heavy keys that wait for their turn: `segment/claim_lanes.lua`",
    on_nodes=True,
)
OF_QUEUE = (SEGMENT, COUNTERS, RETRY, DEAD, LEAVING, RECEIVED, LANES, LEAVING_LETTERS)  # in the order of the scripts

# Workers and their hosts
SUBMITTED = Key(
    "weir:submitted:{queue}:{node}",
    "sorted set",
    "web workers → observer workers",
    "worker ID → submission time (s); a worker that starts removes itself",
)
RUNNING = Key("weir:running:{queue}:{node}", "sorted set", "workers → observer", "worker ID → its last heartbeat (s)")
WORK = Key(
    "weir:work:{queue}:{node}",
    "hash",
    "web workers → observer",
    "cumulative counts of a container's workers; `trouble`: why the last one ended early",
)
LATENCY = Key(
    "weir:latency:{queue}",
    "hash",
    "workers → observer",
    "bucket of publish-to-acknowledge seconds → events: `workers.consumer.work_report`",
)
WORKER = Key(
    "weir:worker:{id}", "string", "workers → workers", "claimed by the worker that starts: an ID runs at most once"
)
HOSTS = Key("weir:hosts", "hash", "workers → web workers observer", "Celery host → JSON report: `workers.pool.hosts`")
POOL = Key(
    "weir:pool:{host}", "string", "web workers → workers", "JSON {threads, pid}: the requested size of a host's pool"
)
POOL_ORDER = Key(
    "weir:pool_order:{plant}:{worker}",
    "string",
    "web workers → web workers",
    "JSON {processes, pid}: the last requested pool size of another app's Celery worker; for seconds",
)
RESUMED_QUEUES = Key(
    "weir:resumed_queues:{plant}",
    "hash",
    "web workers → web workers observer",
    "queue of another app → JSON {worker: [pid, at]}: resumed it after a pause; 90 days after the last",
)
ASKED_WORKERS = Key(
    "weir:asked_workers:{plant}",
    "hash",
    "observer → observer",
    "worker of another app → JSON {pid, at}: Weir requested its task events; 90 days after the last",
)
KNOWN_WORKERS = Key(
    "weir:known_workers:{plant}",
    "hash",
    "observer → observer",
    "worker of another app → JSON {at, queues}: last answered, and its queues; an hour after the last answer",
)
TASKS_BEFORE = Key(
    "weir:tasks_before:{plant}",
    "hash",
    "web workers observer → web workers observer",
    "operator of another plant → JSON {before, tasks, at}: its tasks before Weir set them; 90 days after the last",
)
PLANT_LEASE_LOCK = Key(
    "weir:plant_lease_lock:{plant}",
    "string",
    "web workers observer → web workers observer",
    "the process that renews the leases at another app's RabbitMQ; for seconds",
)
STORED_LETTERS = Key(
    "weir:stored_letters",
    "hash",
    "workers → workers",
    "queue/node → the last dead letter there that `workers.task_history.pipeline_letters` has stored",
)
TASK_ORDER = Key(
    "weir:task_order:{plant}:{operator}",
    "string",
    "web workers → web workers",
    "JSON {tasks, seen}: the last requested tasks of a declared plant's operator, until confirmation is due",
)
DONE = Key(
    "weir:done:{host}",
    "stream",
    "workers → workers",
    "starts, completions, and ends of a host's workers: `workers.pool.departures`",
)

# Coordination and limits
LEASE = Key(
    "weir:lease:{name}", "string", "workers observer → workers observer", "a lease: its token and fencing number"
)
FENCE = Key("weir:fence:{name}", "string", "workers observer → workers observer", "the last fencing number of a lease")
THROTTLE = Key(
    "weir:throttle:{queue}",
    "string",
    "workers → all",
    "exists while the queue is throttled; its producers wait for its time to live: `queues.throttling`",
)
PAUSE = Key(
    "weir:pause:{queue}:{part}",
    "string",
    "web workers → all",
    "JSON {until, reason, by} while a queue's intake or consumption is paused: `queues.pausing`",
)
FAIRNESS = Key(
    "weir:fairness:{queue}",
    "hash",
    "web → all",
    "`settings` and `key:{key}` → JSON {weight, until, reason, by}, for fair queues: `queues.fairness`",
)
DESTINATION = Key(
    "weir:destination:{destination}",
    "string",
    "workers → workers observer",
    "JSON, the retry budget and the circuit breaker of what handlers and retry plans call: "
    "`controllers.retries.circuit`",
)
CIRCUIT_HOLD = Key(
    "weir:circuit-hold:{queue}",
    "string",
    "web workers → workers",
    "JSON {circuit, reason, by} while a person holds its circuit open or closed: `queues.circuit_hold`",
)
DRAIN = Key(
    "weir:drain:{host}",
    "string",
    "web workers → workers",
    "exists while a worker host is drained: it takes no new work",
)
QUOTA = Key(
    "weir:quota:{subject}",
    "hash",
    "web → web",
    "the rest of a token's or user's quota: `events`, `bytes`, and `at` (s, the server's clock)",
)
TOKEN_FAILURES = Key("weir:token-failures:{address}", "string", "web → web", "wrong API tokens of an address")
AUDIT_HEAD = Key(
    "weir:audit:head",
    "string",
    "web workers → web workers",
    "JSON {sequence, digest, seal}: the last entry of the audit log",
)
AUDIT_VERDICT = Key(
    "weir:audit:verdict", "string", "workers → workers", "JSON: the result and time of the last check of the audit log"
)

# Batch tasks
JOB = Key(
    "weir:job:{run}",
    "hash",
    "workers → web workers",
    "chunk → JSON progress while a worker processes it: {rows, share, stages, stages_done, …, worker, at}",
)
JOB_WORKERS = Key(
    "weir:job:{run}:workers", "sorted set", "workers → web workers", "worker → until when (s) it counts as present"
)

# The pipeline
PIPELINE = Key(
    "weir:pipeline",
    "string",
    "pipeline → pipeline observer web",
    "JSON status, after every batch and every second: `workers.pipeline.status`",
)
PIPELINE_WANTED = Key(
    "weir:pipeline:wanted", "hash", "web → pipeline web", "application → JSON {version, text}: what is to run"
)
PIPELINE_ORDERS = Key(
    "weir:pipeline:orders",
    "hash",
    "web → pipeline web",
    "application → JSON {stopped, restart, by, reason, at}: `workers.pipeline.declaration.declared`",
)
PIPELINE_LOG = Key(
    "weir:pipeline:log", "string", "pipeline → pipeline web", "JSON, the newest lines of the process's log"
)
PIPELINE_AT_WORK = Key(
    "weir:pipeline:at-work",
    "hash",
    "pipeline → web workers",
    "application → JSON {name, version, text, refused}: what is running",
)
PIPELINE_SHIPPED = Key(
    "weir:pipeline:shipped", "hash", "pipeline → web", "application → its text in the process's own file"
)
PIPELINE_BATCHES = Key(
    "weir:pipeline:batches:{app}",
    "stream",
    "pipeline → pipeline",
    "`replica` (empty for the combiner), `d`: a finished batch (JSON) of another process; the newest MAX_REPORTS",
)
PIPELINE_TASKS = Key(
    "weir:pipeline:tasks:{app}",
    "hash",
    "pipeline → pipeline",
    "process → the start that its long-running tasks belong to; the tasks end when it changes",
)
PIPELINE_TASK_ORDERS = Key(
    "weir:pipeline:task-orders:{app}",
    "list",
    "pipeline → pipeline",
    "JSON, the combiner's tasks that a helper may take: `workers.pipeline.tiers.helped_tasks`",
)
PIPELINE_TASK_ANSWERS = Key(
    "weir:pipeline:task-answers:{app}", "list", "pipeline → pipeline", "JSON, the counts of executed helper tasks"
)
PIPELINE_RUN = Key(
    "weir:pipeline:run:{app}", "string", "pipeline → pipeline", "the run that the data folder and the state belong to"
)
PIPELINE_CONTROLS = Key(
    "weir:pipeline:controls:{app}",
    "string",
    "web workers pipeline → web workers pipeline",
    "JSON, the controls that were set: `workers.pipeline.declaration.controls`",
)
PIPELINE_SKETCHES = Key(
    "weir:pipeline:sketches:{app}", "hash", "pipeline → pipeline", "`{criterion}/{slot}/{writer}` → a KLL sketch"
)
PIPELINE_CURSOR = Key("weir:pipeline:cursor:{app}", "hash", "pipeline → pipeline", "`tick`, `cursor` (JSON)")
PIPELINE_ASSIGNED = Key(
    "weir:pipeline:assigned:{app}:{replica}",
    "stream",
    "pipeline → pipeline",
    "entry `{tick}-0`: `d` an assignment (JSON)",
)
PIPELINE_ROOM = Key(
    "weir:pipeline:room:{app}",
    "hash",
    "pipeline → pipeline",
    "`used_bytes`; `in_flight_events`: dispatched, no result yet; `events`, `bytes`; `published:…`, "
    "`attempt:…` of each replica",
)
PIPELINE_RESULT = Key(
    "weir:pipeline:result:{app}:{replica}:{tick}", "hash", "pipeline → pipeline", "blob name → rows (Arrow stream)"
)
PIPELINE_RESULTS = Key(
    "weir:pipeline:results:{app}", "stream", "pipeline → pipeline", "`d`: a `Result` (JSON), when it was published"
)
PIPELINE_PLANNED = Key(
    "weir:pipeline:planned:{app}",
    "hash",
    "pipeline → pipeline",
    "the newest inter-event batch: `batch`, `offset` (JSON); `done`: the newest batch that is finished",
)
PIPELINE_FAULTS = Key(
    "weir:pipeline:faults:{app}:{replica}:{tick}",
    "hash",
    "pipeline → pipeline",
    "`queue/node/entry/block/place` → cause and rows",
)
PIPELINE_FAULTY = Key(
    "weir:pipeline:faulty:{app}",
    "set",
    "pipeline → pipeline",
    "`{replica}:{tick}` of the batches that have faults to deliver",
)
PIPELINE_STATE = Key(
    "weir:pipeline:state:{app}",
    "hash",
    "pipeline → pipeline",
    "`{operator}/{group}` → state, `…:batch` → the batch that wrote it",
)
PIPELINE_PENDING = Key(
    "weir:pipeline:pending:{app}",
    "hash",
    "pipeline → pipeline",
    "place → event time (µs) at which it is due without events",
)
PIPELINE_BETWEEN = Key(
    "weir:pipeline:between:{app}:{batch}",
    "hash",
    "pipeline → pipeline",
    "name → complex events for other operators (Arrow stream)",
)
PIPELINE_OUTBOX = Key(
    "weir:pipeline:outbox:{app}",
    "hash",
    "pipeline → pipeline",
    "`{queue}|{batch}/{run}/…` → complex events still to be published",
)
PIPELINE_RECENT = Key(
    "weir:pipeline:recent:{app}", "list", "pipeline → web", "JSON, the newest complex events that were published"
)
PIPELINE_LATE = Key(
    "weir:pipeline:late:{app}",
    "stream",
    "pipeline → pipeline",
    "`d` late events (Arrow stream), `n` how many; for the newest LATE_RETAINED units",
)

# Libraries
CELERY = Key("weir:celery:", "prefix", "web workers → web workers", "Celery's queues")

KEYS = tuple(key for key in tuple(globals().values()) if isinstance(key, Key))


def list_queue_keys(queue: str) -> list[str]:
    """Return a queue's keys on a node, in the order of OF_QUEUE."""
    return [key.build(queue) for key in OF_QUEUE]
