"""The drills: what breaks, for how long, what a person is told, and which actions end it or make it worse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from common.errors import BadInput
from console.drills.scoring import Verdict
from workers.control.kinds import concurrency

FaultKind = Literal[
    "burst", "hot_key", "slow_handler", "failing_events", "node_lost", "observer_suspended", "harmful_plan",
    "pipeline_killed",
]  # fmt: skip
Level = Literal["Basic", "Medium", "Hard"]
BURST_FACTOR, SLOW_FACTOR, FAILING_SHARE = 20, 8, 0.02
WARM_UP_SECONDS = 15.0  # of the practice queue's usual load, before the first fault


class AuditedAction(Protocol):
    """An entry of the audit log."""

    @property
    def action(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def after(self) -> Any: ...


@dataclass(frozen=True)
class DrillFault:
    """A fault, its start (seconds after the first fault), and its maximum duration."""

    kind: FaultKind
    seconds: float
    after_seconds: float = 0.0


@dataclass(frozen=True)
class DrillResponse:
    """An audited action. target: in its target, with {queue} and {node}; part: a field or value that it changes."""

    action: str
    target: str = ""
    part: str = ""

    def matches(self, entry: AuditedAction, subjects: Mapping[str, str]) -> bool:
        if entry.action != self.action:
            return False
        after = entry.after if isinstance(entry.after, Mapping) else {}
        changed = {*map(str, after), *(str(value) for value in after.values())}
        words = entry.target.replace("/", " ").replace(",", " ").split()
        return (not self.target or self.target.format(**subjects) in words) and (not self.part or self.part in changed)


@dataclass(frozen=True)
class DrillScenario:
    """A drill. Times are those of a plant with two worker slots.

    watch: what happens, for the person who starts it. right: the responses that end the cause or its impact, one group
    for each cause. harmful: the responses that make it worse. lesson: what to do faster the next time.
    """

    name: str
    title: str
    summary: str
    level: Level
    minutes: int
    icon: str
    briefing: str
    hints: tuple[str, ...]
    faults: tuple[DrillFault, ...]
    right: tuple[tuple[DrillResponse, ...], ...]
    lesson: str
    watch: tuple[str, ...] = ()
    harmful: tuple[DrillResponse, ...] = ()
    needs_queue: bool = True

    def judge(self, entry: AuditedAction, subjects: Mapping[str, str]) -> Verdict:
        """Return the verdict on an audited action. Actions that change nothing of the plant are neutral."""
        if any(response.matches(entry, subjects) for group in self.right for response in group):
            return "right"
        if any(response.matches(entry, subjects) for response in (*self.harmful, *ALWAYS_HARMFUL)):
            return "harmful"
        return "no effect" if entry.action in PLANT_CHANGES else "neutral"


# Actions that change how the plant works. Acknowledgments, notes, marks, and proposals don't.
PLANT_CHANGES = frozenset(
    {
        "host.drain", "ladder.cap", "loop.mode", "node.thresholds", "node.use", "override.set", "pipeline.declare",
        "pipeline.steer", "plan.approve", "plant.scale", "process.restart", "queue.change", "queue.pause",
        "dead_letters.discard",
    }
)  # fmt: skip
ALWAYS_HARMFUL = (DrillResponse("host.drain"), DrillResponse("process.restart", "control"))
PAUSE_INTAKE = DrillResponse("queue.pause", "{queue}", "intake")
PAUSE_CONSUMPTION = DrillResponse("queue.pause", "{queue}", "consumption")
ADD_SLOT = DrillResponse("loop.mode", concurrency.KIND.name, "manual")
CHANGE_QUEUE = DrillResponse("queue.change", "{queue}")
SLOW_RESPONSES = (PAUSE_CONSUMPTION, CHANGE_QUEUE, DrillResponse("override.set", "{queue}", "upper_limit"))
NODE_RESPONSES = (
    DrillResponse("node.use", "{node}"),
    DrillResponse("process.restart", "{node}"),
    DrillResponse("process.restart", "agent-{node}"),
    DrillResponse("plan.approve"),
)
OTHER_CONSUMPTION = DrillResponse("queue.pause", part="consumption")

SCENARIOS: Mapping[str, DrillScenario] = {
    scenario.name: scenario
    for scenario in (
        DrillScenario(
            name="burst",
            title="Send a burst",
            summary=f"{BURST_FACTOR} times the usual load for 60 s",
            level="Basic",
            minutes=6,
            icon="burst",
            briefing="A producer sends many more events than usual to {queue} for a minute. Find out whether the "
            "loops can handle it, and limit the impact if they can't.",
            hints=(
                "Compare events in and out on the page of {queue}.",
                "The worker rate loops start workers until all slots are busy.",
                "Pause the intake of {queue}, or acknowledge the incident if the backlog falls in time.",
            ),
            faults=(DrillFault("burst", 60.0),),
            right=(
                (
                    PAUSE_INTAKE,
                    PAUSE_CONSUMPTION,
                    ADD_SLOT,
                    DrillResponse("alert.acknowledge"),
                    DrillResponse("override.set", "{queue}"),
                ),
            ),
            harmful=(OTHER_CONSUMPTION, DrillResponse("loop.mode", "{queue}", "hold")),
            lesson="Look at the backlog first. While it falls, the loops handle the burst, and you only need to "
            "acknowledge the incident.",
        ),
        DrillScenario(
            name="slow-handler",
            title="Slow handler",
            summary=f"the handler of a queue becomes {SLOW_FACTOR} times slower",
            level="Basic",
            minutes=5,
            icon="clock",
            briefing="The handler of {queue} slows down. The queue uses all worker slots, and other queues are "
            "delayed. Protect the other queues.",
            hints=(
                "On the page Workers, see which queue holds the slots.",
                "A third slot can't help: {queue} now needs more slots than the pool has.",
                "Pause the consumption of {queue}. Its events wait, and no event is lost.",
            ),
            faults=(DrillFault("slow_handler", 300.0),),
            right=(SLOW_RESPONSES,),
            harmful=(OTHER_CONSUMPTION,),
            lesson="Pause the consumption of the slow queue first, then repair its handler. More slots can't help.",
        ),
        DrillScenario(
            name="node-lost",
            title="Node lost",
            summary="a node server and its agent are killed",
            level="Basic",
            minutes=4,
            icon="nodes",
            briefing="A node stops responding. Find out which one, and what happens to its points and its events.",
            hints=(
                "On the page Nodes, find the node that is offline.",
                "Recovery moves its points to the other nodes. Producers continue there.",
                "Drain {node}, or restart its server. Its stored events are processed when it returns.",
            ),
            faults=(DrillFault("node_lost", 120.0),),
            right=(NODE_RESPONSES,),
            harmful=(OTHER_CONSUMPTION,),
            lesson="A lost node keeps its stored events. Drain it, so that it gets no new events until it returns.",
        ),
        DrillScenario(
            name="poison-events",
            title="Poison events",
            summary="2 % of the events fail on every attempt",
            level="Medium",
            minutes=5,
            icon="dead-letters",
            briefing="Some events of {queue} fail on every attempt. Find them, and prevent them from "
            "delaying the other events.",
            hints=(
                "Open Dead letters: the error names what failed.",
                "Retries repeat the work of whole blocks, so the queue slows down.",
                "Change the handler of {queue}, or pause its intake until the handler is repaired.",
            ),
            faults=(DrillFault("failing_events", 240.0),),
            right=((CHANGE_QUEUE, PAUSE_INTAKE, PAUSE_CONSUMPTION, DrillResponse("dead_letters.requeue")),),
            harmful=(DrillResponse("dead_letters.discard"), OTHER_CONSUMPTION),
            lesson="Read the error in Dead letters before you act. Discard dead letters only if nobody needs them.",
        ),
        DrillScenario(
            name="measurements-stop",
            title="Measurements stop",
            summary="the observer is suspended, and the loops take no action",
            level="Medium",
            minutes=4,
            icon="eye",
            briefing="The console's figures stop changing. Find out which process stopped, and restart it.",
            hints=(
                "The age of the data in the strip grows. The queues and workers continue.",
                "On the page Processes, find the suspended process.",
                "Kill and restart the observer: a suspended process doesn't react to a normal stop.",
            ),
            faults=(DrillFault("observer_suspended", 180.0),),
            right=((DrillResponse("process.restart", "observer"),),),
            harmful=(DrillResponse("process.restart"), OTHER_CONSUMPTION),
            lesson="Stale figures point to a fault of the measurement. Check Processes before you change the plant.",
            needs_queue=False,
        ),
        DrillScenario(
            name="harmful-plan",
            title="Harmful plan",
            summary="a plan overloads a node",
            level="Medium",
            minutes=6,
            icon="undo",
            briefing="Somebody approved a plan, and a node is too busy now. Find the plan, and undo it.",
            hints=(
                "On the page Plans, find the newest completed plan.",
                "Compare the points of {queue} on the nodes.",
                "Roll the plan back, or balance all nodes, and approve the resulting plan.",
            ),
            faults=(DrillFault("harmful_plan", 300.0),),
            right=((DrillResponse("plan.approve"), DrillResponse("plan.stop"), PAUSE_INTAKE),),
            harmful=(DrillResponse("process.restart", "{node}"), OTHER_CONSUMPTION),
            lesson="Look at the changes before the alert. You can roll back a completed plan on its page.",
        ),
        DrillScenario(
            name="hot-key",
            title="Hot key",
            summary=f"one key gets {BURST_FACTOR} times the usual load",
            level="Medium",
            minutes=6,
            icon="burst",
            briefing="{queue} gets many more events than usual. Find out which producer and which key they come from.",
            hints=(
                "On the page Compare time ranges, compare the last minute with the minutes before.",
                "One key explains the difference. The producers are the usual ones.",
                "Pause the intake of {queue} until the owner of the key has fixed the cause.",
            ),
            faults=(DrillFault("hot_key", 180.0),),
            right=((PAUSE_INTAKE, PAUSE_CONSUMPTION, ADD_SLOT, DrillResponse("override.set", "{queue}")),),
            harmful=(OTHER_CONSUMPTION,),
            lesson="Compare the events by key before you look at producers and nodes.",
        ),
        DrillScenario(
            name="pipeline-killed",
            title="Pipeline killed",
            summary="the pipeline is killed and does not restart",
            level="Medium",
            minutes=6,
            icon="pipeline",
            briefing="Complex events stop arriving. Find the process that stopped, and restart it.",
            hints=(
                "Queue telemetry is filling because no process consumes it.",
                "On the page Processes, find the process that is not running.",
                "Restart the pipeline. It continues where it stopped.",
            ),
            faults=(DrillFault("pipeline_killed", 300.0),),
            right=((DrillResponse("process.restart", "pipeline"),),),
            harmful=(OTHER_CONSUMPTION, DrillResponse("queue.pause", "telemetry", "intake")),
            lesson="If no process consumes a queue, check its consumer first. Open Processes.",
            needs_queue=False,
        ),
        DrillScenario(
            name="two-failures",
            title="Two failures at once",
            summary="node lost, then slow handler",
            level="Hard",
            minutes=8,
            icon="bolt",
            briefing="Two failures start within a minute. Find both causes, and decide which one to handle first.",
            hints=(
                "There are two incidents. One is about a node, the other about a queue.",
                "The node returns after two minutes. The slow handler doesn't repair itself.",
                "Pause the consumption of {queue}, and drain {node}.",
            ),
            faults=(DrillFault("node_lost", 120.0), DrillFault("slow_handler", 300.0, after_seconds=30.0)),
            right=(NODE_RESPONSES, SLOW_RESPONSES),
            harmful=(OTHER_CONSUMPTION,),
            lesson="First handle the cause that affects more queues. The slow handler holds all worker slots.",
        ),
    )
}


def get_scenario(name: str) -> DrillScenario:
    """Return a scenario. Raises `BadInput` for an unknown name."""
    if name not in SCENARIOS:
        raise BadInput("scenario", f"must be one of {', '.join(SCENARIOS)}, not {name[:40]!r}.")
    return SCENARIOS[name]


@dataclass(frozen=True)
class AssessedResponses:
    """The right actions of a person so far: the group of causes that each belongs to, and the verdicts on all."""

    action_seconds: float | None
    verdicts: list[Verdict] = field(default_factory=list)


def assess(
    scenario: DrillScenario, subjects: Mapping[str, str], entries: list[tuple[float, AuditedAction]]
) -> AssessedResponses:
    """Assess actions, each with its seconds after the alert.

    The time to the right action is that at which each cause has had one. Later actions without effect cost nothing.
    """
    seconds_by_group: dict[int, float] = {}
    verdicts: list[Verdict] = []
    for seconds, entry in entries:
        verdict = scenario.judge(entry, subjects)
        is_done = len(seconds_by_group) == len(scenario.right)
        verdicts.append("neutral" if is_done and verdict == "no effect" else verdict)
        for place, group in enumerate(scenario.right):
            if any(response.matches(entry, subjects) for response in group):
                seconds_by_group.setdefault(place, max(seconds, 0.0))
    is_done = len(seconds_by_group) == len(scenario.right)
    return AssessedResponses(max(seconds_by_group.values()) if is_done else None, verdicts)
