"""Causes at a shared resource: the worker pool, a node, the control worker, the pipeline, and its capacity."""

from collections.abc import Iterator, Sequence

from controllers.framework.reason import capitalize, format_count
from queues.nodes.agent_threads import OBSERVER, get_agent_process
from queues.nodes.node_state import OFFLINE, TOOBUSY
from workers.alerts.evaluation.impact import describe_node_impact, join_names
from workers.documents.pipeline import FAILED, STALLED, STARTING, UNHEARD
from workers.documents.snapshot import Snapshot
from workers.documents.states import SubjectState, SuggestedAction
from workers.snapshot import suggestions
from workers.snapshot.scene import (
    Cause,
    Scene,
    find_dominant_producer,
    find_hot_key,
    find_suspended,
    format_since,
    format_waiting,
    join_sentences,
    list_processes,
    waits_on,
)
from workers.steering.scope import explain_no_slots, list_shedding_queues


def _find_stopped_pool(scene: Scene) -> Iterator[Cause]:
    """Find that no worker of role jobs runs: all jobs queues wait."""
    if not scene.is_critical("plant/workers"):
        return
    snapshot = scene.snapshot
    queues = [name for name, row in snapshot.queues.items() if row.kind == "jobs"]
    gone = [state.name for state in scene.states.values() if state.kind == "host" and state.name.startswith("jobs@")]
    drains = {name: host.draining for name, host in snapshot.hosts.items() if host.role == "jobs" and host.draining}
    nothing, reason = f"no worker processes events of {join_names(queues)}", ""
    if drains:
        drain = next(iter(drains.values()))
        who = f"host {next(iter(drains))} is" if len(drains) == 1 else f"hosts {join_names(list(drains))} are"
        sentence = f"Worker {who} drained{f' by {drain.by}' if drain.by else ''}: {nothing}."
        reason = f"Reason: {drain.reason}" if drain.reason else ""
        actions = [
            suggestions.suggest_ending(
                row.override,
                f"Return {name} to service",
                f"{format_count(snapshot.hosts[name].slots, 'worker slot')} can process events within seconds.",
            )
            for name, row in drains.items()
        ]
    else:
        suspended = find_suspended(snapshot, "worker-jobs")
        pool = f"Worker host {gone[0]} {'is suspended' if suspended else 'stopped'}" if len(gone) == 1 else ""
        sentence = f"{pool or capitalize(explain_no_slots(snapshot))}: {nothing}."
        waiting = sum(snapshot.queues[name].waiting_events or 0 for name in queues)
        effect = (
            "New workers take over the claimed events within 15 s after they start. "
            f"{format_count(waiting, 'waiting event')} can be processed again."
        )
        actions = [suggestions.suggest_restart("worker-jobs", effect)]
    late = scene.list_troubled_queues("jobs")
    waiting = sum(snapshot.queues[name].waiting_events or 0 for name in queues)
    impact = join_sentences(scene.describe_waits(late[:2]), format_waiting(waiting), reason)
    loops = [subject for queue in queues for subject in scene.list_loops(queue=queue)]
    hosts = [f"host/{name}" for name in gone]
    affected = (*(f"queue/{name}" for name in queues), *hosts, *loops)
    yield Cause("plant/workers", sentence, impact, affected, tuple(actions))


def _find_lost_nodes(scene: Scene) -> Iterator[Cause]:
    """Find silent nodes: what waits there is not handled, and their loops have no measurement."""
    snapshot = scene.snapshot
    for name, node in snapshot.nodes.items():
        if not scene.is_critical(f"node/{name}") or node.state not in (OFFLINE, None) or node.unreadable is not None:
            continue
        sentence, actions = _describe_lost_node(scene, name)
        late = [queue for queue in scene.list_troubled_queues() if waits_on(snapshot.queues[queue], name)]
        affected = [f"queue/{queue}" for queue in late]
        if any(row.kind == "pipeline" and name in row.containers for row in snapshot.queues.values()):
            affected += ["pipeline/main", *(f"application/{row}" for row in snapshot.pipeline.applications)]
        affected += scene.list_loops(node=name)
        # A loop of the whole plant has no valid measurement without this node.
        affected += [
            f"loop/{loop}"
            for loop, row in snapshot.loops.items()
            if row.blind_since is not None and not {"node", "plant"} & row.target.keys()
        ]
        impact = join_sentences(describe_node_impact(snapshot, name), scene.describe_waits(late[:3]))
        yield Cause(f"node/{name}", sentence, impact, tuple(affected), tuple(actions))


def _describe_lost_node(scene: Scene, name: str) -> tuple[str, list[SuggestedAction]]:
    """Return which process of a silent node does not work, and the restarts, that of this process first."""
    snapshot, agent = scene.snapshot, get_agent_process(name)
    suspended = find_suspended(snapshot, agent, name)
    # Without its server, a new agent has nothing to report.
    down = list_processes(snapshot, "down", name, agent)
    refuses = any(row.containers[name].trouble for row in snapshot.queues.values() if name in row.containers)
    kill = "Kills the suspended process and starts it" if suspended else "Starts the agent"
    restarts = {
        agent: suggestions.suggest_restart(agent, f"{kill} again within about 3 s. The server keeps its events."),
        name: suggestions.suggest_restart(
            name, f"Starts the server of {name} again. The server loads its events from its file."
        ),
    }
    if suspended:
        what = "the agent" if suspended == agent else "the server"
        effect = f"{kill} again within about 3 s. The server keeps its events."
        restart = suggestions.suggest_restart(suspended, effect)
        return f"Node {name} stopped reporting: {what} of {name} is suspended.", [restart]
    if snapshot.nodes[name].state is None:
        return scene.states[f"node/{name}"].finding, [restarts[agent]]
    if down == [agent]:
        return f"Node {name} stopped reporting: its agent is down.", [restarts[agent], restarts[name]]
    if down:
        both = "server and its agent are" if len(down) > 1 else "server is"
        return f"Node {name} stopped reporting: its {both} down.", [restarts[name], restarts[agent]]
    if refuses:
        sentence = f"Node {name} stopped reporting: its server does not respond."
        return sentence, [restarts[name], restarts[agent]]
    sentence = f"Node {name} stopped reporting{format_since(snapshot.nodes[name].age_seconds)}."
    # An observer that composes this snapshot also runs its agents, so the server is the likelier cause.
    return sentence, [restarts[name]] if agent == OBSERVER else [restarts[agent], restarts[name]]


def _find_stopped_control(scene: Scene) -> Iterator[Cause]:
    """Find that the worker which runs the loops is gone: they all stop."""
    for state in scene.states.values():
        if state.kind == "host" and state.name.startswith("control@") and state.stale and state.finding:
            suspended = find_suspended(scene.snapshot, "worker-control")
            how = "is suspended" if suspended else "has stopped reporting"
            sentence = f"The control worker {state.name} {how}: no loop acts."
            loops = tuple(f"loop/{name}" for name in scene.snapshot.loops)
            impact = "No loop starts workers or moves points until the control worker runs again."
            restart = suggestions.suggest_restart("worker-control", "The loops act again within about 10 s.")
            yield Cause(f"host/{state.name}", sentence, impact, loops, (restart,))


def _find_starting_pipeline(scene: Scene) -> Iterator[Cause]:
    """Find that the pipeline or an application is starting, so that its queues wait for a time."""
    pipeline = scene.snapshot.pipeline
    queues = _list_pipeline_queues(scene.snapshot)
    if pipeline.state == STARTING:
        applications = [f"application/{name}" for name in pipeline.applications]
        yield _describe_start(scene, "pipeline/main", queues, applications)
        return
    for name, row in pipeline.applications.items():
        if row.state == STARTING:
            yield _describe_start(scene, f"application/{name}", row.queues, ())


def _describe_start(scene: Scene, subject: str, queues: Sequence[str], applications: Sequence[str]) -> Cause:
    late = [f"queue/{name}" for name in queues if scene.has_backlog_problem(name)]
    impact = f"{_describe_pipeline(scene, queues)} Nothing to do: it continues from its last checkpoint."
    return Cause(subject, scene.states[subject].finding, impact, (*applications, *late))


def _find_stopped_pipeline(scene: Scene) -> Iterator[Cause]:
    """Find that the pipeline or an application is down or makes no progress: its queues wait."""
    snapshot, pipeline = scene.snapshot, scene.snapshot.pipeline
    if scene.is_critical("pipeline/main") and (
        pipeline.state in UNHEARD or scene.states["pipeline/main"].within is None
    ):
        suspended = find_suspended(snapshot, "pipeline")
        state = scene.states["pipeline/main"]
        sentence = state.finding
        if suspended:
            sentence = "The pipeline stopped reporting: its process is suspended."
        elif pipeline.state in UNHEARD and pipeline.state is not None:
            sentence = f"The pipeline stopped reporting{format_since(pipeline.age_seconds)}."
        kill = "Kills the suspended process and starts it" if suspended else "Starts the pipeline"
        read = _list_pipeline_queues(snapshot)
        effect = f"{kill} again. {suggestions.describe_pipeline_start(snapshot, read)}"
        restart = suggestions.suggest_restart("pipeline", effect)
        applications = [f"application/{name}" for name in pipeline.applications]
        queues = [f"queue/{name}" for name in scene.list_troubled_queues("pipeline")]
        loops = [subject for name in pipeline.applications for subject in scene.list_loops(application=name)]
        impact = _describe_pipeline(scene, read)
        yield Cause("pipeline/main", sentence, impact, (*applications, *queues, *loops), (restart,))
    for name, row in pipeline.applications.items():
        state = scene.states.get(f"application/{name}", SubjectState(kind="application", name=name))
        if row.state in (FAILED, STALLED) and state.severity == "critical" and state.within is None:
            queues = [f"queue/{queue}" for queue in row.queues if scene.has_backlog_problem(queue)]
            loops = scene.list_loops(application=name)
            actions = [suggestions.suggest_application_restart(snapshot, name)]
            if row.state == FAILED:
                words, effect = f"Change the declaration of {name}", "A corrected version replaces the failing version."
                actions.append(suggestions.suggest_declaration(name, words, effect))
            impact = _describe_pipeline(scene, row.queues)
            affected = ("pipeline/main", *queues, *loops)
            yield Cause(f"application/{name}", state.finding, impact, affected, tuple(actions))


def _list_pipeline_queues(snapshot: Snapshot) -> list[str]:
    return [name for name, row in snapshot.queues.items() if row.kind == "pipeline"]


def _describe_pipeline(scene: Scene, queues: Sequence[str]) -> str:
    """Describe what waits for the pipeline, and that nothing is detected."""
    waiting = sum(scene.snapshot.queues[name].waiting_events or 0 for name in queues if name in scene.snapshot.queues)
    late = [name for name in scene.list_troubled_queues("pipeline") if name in queues]
    parts = [scene.describe_waits(late[:3]), format_waiting(waiting) if waiting else ""]
    return join_sentences(*parts, "no complex events are detected")


def _find_rejected_declarations(scene: Scene) -> Iterator[Cause]:
    """Find applications that can't run the version that people want."""
    for name in scene.snapshot.rejected:
        runs = name in scene.snapshot.pipeline.applications
        impact = "The previous version keeps running." if runs else "The application does not run."
        words = f"Change the declaration of {name}"
        action = suggestions.suggest_declaration(
            name, words, "Shows the error. A corrected version runs within seconds."
        )
        state = scene.states.get(f"application/{name}")
        if state is not None:
            yield Cause(f"application/{name}", state.finding, impact, (), (action,))


def _find_busy_nodes(scene: Scene) -> Iterator[Cause]:
    """Find nodes that are too busy: the queues on them wait."""
    snapshot = scene.snapshot
    for name, node in snapshot.nodes.items():
        if node.state != TOOBUSY or node.stale:
            continue
        queues = sorted(
            (queue for queue, row in snapshot.queues.items() if name in row.containers),
            key=lambda queue: -(snapshot.queues[queue].containers[name].load or 0.0),
        )
        hot = next(((queue, key) for queue in queues[:1] if (key := find_hot_key(snapshot, queue))), None)
        sentence, actions = f"Node {name} is too busy.", []
        if hot:
            queue, key = hot
            sentence = f"Node {name} is too busy: most events of queue {queue} have the key {key}."
            actions += suggestions.suggest_intake_pause(snapshot, queue)
        share = 100 * (node.utilisation or 0.0)
        impact = f"It uses {share:.0f} % of its capacity (limit {100 * node.toobusy:.0f} %)."
        late = [queue for queue in scene.list_troubled_queues() if waits_on(snapshot.queues[queue], name)]
        if len(snapshot.nodes) > 1:
            actions.append(suggestions.suggest_relief(snapshot, name, hot[1] if hot else None))
        affected = (*(f"queue/{queue}" for queue in late), *scene.list_loops(node=name))
        yield Cause(
            f"node/{name}", sentence, join_sentences(impact, scene.describe_waits(late[:3])), affected, tuple(actions)
        )


def _find_shedding(scene: Scene) -> Iterator[Cause]:
    """Find that load shedding drops events: more arrive than an application can process."""
    snapshot, state = scene.snapshot, scene.states.get("plant/shedding")
    rows = {name: row for name, row in sorted(snapshot.pipeline.applications.items()) if row.shed_share}
    if state is None or not state.finding or not rows:
        return
    queues = sorted({queue for row in rows.values() for queue in list_shedding_queues(row.queues, snapshot) or ()})
    applications = f"{'application' if len(rows) == 1 else 'applications'} {join_names(list(rows))}"
    sentence = f"Load shedding has just dropped events of {applications}."
    if queues:
        of_queues = f"{'queue' if len(queues) == 1 else 'queues'} {join_names(queues)}"
        sentence = f"Load shedding drops events of {of_queues}: more arrive than {applications} can process."
    producer = find_dominant_producer(snapshot, queues[0]) if len(queues) == 1 else None
    from_producer = f"most events come from {producer}" if producer else ""
    remedy = suggestions.suggest_producer_remedy(snapshot, producer) if producer else []
    intake = [action for queue in queues for action in suggestions.suggest_intake_pause(snapshot, queue)]
    affected = [f"queue/{queue}" for queue in queues]
    loops = [subject for name in rows for subject in scene.list_loops(application=name)]
    impact = join_sentences(state.impact, from_producer)
    yield Cause("plant/shedding", sentence, impact, (*affected, *loops), (*remedy, *intake))


RESOURCE_FINDERS = (
    _find_stopped_pool,
    _find_lost_nodes,
    _find_stopped_control,
    _find_starting_pipeline,
    _find_stopped_pipeline,
    _find_rejected_declarations,
    _find_busy_nodes,
    _find_shedding,
)
