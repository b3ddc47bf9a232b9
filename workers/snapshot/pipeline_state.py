"""The states of the pipeline's process and of its applications.

A problem is reported once: by the application, where one fails or stalls while the process reports; by the process,
where it is silent or failed, and then all its applications show old figures.
"""

from collections.abc import Iterator, Mapping

from common.stored_document import replace_fields
from controllers.framework.reason import format_count
from queues.nodes.node_state import BUSY, NORMAL, OFFLINE, TOOBUSY
from queues.pausing import INTAKE
from workers.alerts.evaluation.impact import describe_first_step
from workers.documents.pipeline import (
    FAILED,
    NOT_REPORTING,
    OUTDATED,
    RUNNING,
    STALLED,
    STARTING,
    STOPPED,
    STOPPING,
    UNHEARD,
    ApplicationStatus,
    PipelineStatus,
)
from workers.documents.states import SEVERITIES, Severity, SubjectState
from workers.snapshot.judgement import Fault, WatchedSnapshot, clock_fault
from workers.snapshot.scene import format_since
from workers.steering.scope import find_pause

SUBJECT = "main"  # the name that its alerts use
START_SECONDS = 60.0  # Spark's start on a slow machine
# state → sign, word
SIGNS: Mapping[str, tuple[str, str]] = {
    RUNNING: (NORMAL, "Running"),
    STARTING: (BUSY, "Starting"),
    STOPPING: (BUSY, "Stopping"),
    STOPPED: (BUSY, "Stopped"),
    STALLED: (TOOBUSY, "Stalled"),
    FAILED: (TOOBUSY, "Failed"),
    NOT_REPORTING: (OFFLINE, "Not reporting"),
}


def iterate_pipeline_states(watched: WatchedSnapshot) -> Iterator[SubjectState]:
    """Return the states of the process, where a queue requires it, and of each application."""
    snapshot = watched.snapshot
    needed = any(queue.kind == "pipeline" for queue in snapshot.queues.values())
    if not needed and not snapshot.pipeline.applications:
        return
    applications = [
        _build_application_state(watched, name, row) for name, row in snapshot.pipeline.applications.items()
    ]
    of_application = [application for application in applications if application.finding]
    within = None
    if not _is_down(snapshot.pipeline) and of_application:
        worst = max(of_application, key=lambda finding: SEVERITIES.index(finding.severity))
        within = f"application/{worst.name}"
    faults = list(_iterate_process_faults(watched, snapshot.pipeline))
    never = NOT_REPORTING if any(fault.severity == "critical" for fault in faults) else ""
    sign, word = SIGNS.get(snapshot.pipeline.state or never, (None, "Unknown"))
    stale, known = snapshot.pipeline.state in OUTDATED, snapshot.pipeline.state is not None
    state = watched.get_state("pipeline", SUBJECT, faults, sign=sign, word=word, stale=stale, known=known)
    yield replace_fields(state, within=within)
    yield from applications
    for name in snapshot.rejected.keys() - snapshot.pipeline.applications.keys():
        faults = list(_find_rejected(watched, name))
        yield watched.get_state("application", name, faults, sign=OFFLINE, word="Rejected")


def _is_down(pipeline: PipelineStatus) -> bool:
    """Return whether the process as a whole is down, so that no application has reported."""
    own = [row.state for row in pipeline.applications.values()]
    return pipeline.state in UNHEARD or (pipeline.state == FAILED and FAILED not in own)


def _iterate_process_faults(watched: WatchedSnapshot, row: PipelineStatus) -> Iterator[Fault]:
    since = watched.before.get(f"pipeline/{SUBJECT}")
    seconds = watched.at - since.since if since is not None and since.since is not None else 0.0
    if row.state is None:
        never: Severity = (
            "critical" if seconds > START_SECONDS or (since is not None and since.severity == "critical") else "notice"
        )
        yield Fault(never, "The pipeline has not reported yet.", describe_first_step("pipeline_down"))
    elif row.state == NOT_REPORTING:
        yield _build_down_fault(
            watched, row.age_seconds, f"The pipeline stopped reporting{format_since(row.age_seconds)}."
        )
    elif row.state == FAILED:
        yield _build_down_fault(watched, seconds, f"The pipeline failed: {_format_reason(row.error)}.")
    else:
        yield from _iterate_state_faults(row.state, "The pipeline", row.error, row.hindrance)
        lag = row.watermark_lag_seconds
        said = "Its lag is unknown." if lag is None else f"Event time is {lag:,.0f} s behind."
        late = "The pipeline is lagging."
        yield from watched.find_faults("pipeline", SUBJECT, "pipeline_lag", lag, late, impact=said)
        yield from clock_fault("the pipeline's host", row.ahead_seconds or 0.0)


def _build_down_fault(watched: WatchedSnapshot, seconds: float | None, sentence: str) -> Fault:
    rules = watched.list_exceeded("pipeline", SUBJECT, "pipeline_down", seconds, {"pipeline": SUBJECT})
    return Fault("critical", sentence, describe_first_step("pipeline_down"), tuple(rule.rule for rule in rules))


def _build_application_state(watched: WatchedSnapshot, name: str, row: ApplicationStatus) -> SubjectState:
    pipeline = watched.snapshot.pipeline
    if _is_down(pipeline):
        down_sign, down_word = SIGNS[pipeline.state or NOT_REPORTING]
        fault = Fault("critical", f"{name} is down because the pipeline is down.")
        state = watched.get_state("application", name, [fault], sign=down_sign, word=down_word, stale=True)
        return replace_fields(state, within=f"pipeline/{SUBJECT}")
    sign, word = SIGNS.get(row.state, (None, row.state.capitalize()))
    faults = [
        *_iterate_state_faults(row.state, name, row.error, row.hindrance),
        *_find_unpublished(watched, name, row),
        *_find_rejected(watched, name),
    ]
    return watched.get_state("application", name, faults, sign=sign, word=word, stale=row.state in OUTDATED)


def _find_rejected(watched: WatchedSnapshot, name: str) -> Iterator[Fault]:
    if (reason := watched.snapshot.rejected.get(name)) is not None:
        yield Fault("warning", f"The newest declaration of {name} was rejected: {_format_reason(reason)}.")


def _iterate_state_faults(state: str | None, name: str, error: str | None, stall: str | None) -> Iterator[Fault]:
    if state == FAILED:
        yield Fault("critical", f"{name} failed: {_format_reason(error)}.", describe_first_step("pipeline_down"))
    elif state == STALLED:
        yield Fault("critical", f"{name} is stalled: {_format_reason(stall)}.", describe_first_step("pipeline_stalled"))
    elif state == STARTING:
        again = f" again after a failure: {_format_reason(error)}" if error else ""
        yield Fault("warning" if error else "notice", f"{name} is starting{again}; events wait in its queues.")
    elif state == STOPPING:
        yield Fault("notice", f"{name} is stopping; events wait in its queues.")


def _find_unpublished(watched: WatchedSnapshot, name: str, row: ApplicationStatus) -> Iterator[Fault]:
    """Yield a fault for each queue that accepts no matches; a notice where people have paused it."""
    for queue, events in sorted(row.outbox.items()):
        pause = find_pause(queue, INTAKE, watched.snapshot)
        why = "its intake is paused" if pause else "it accepts no events"
        more = f"; {name} stops reading until the queue accepts events" if row.outbox_full else ""
        wait = f"Complex events of {name} wait for queue {queue}: {why}{more}."
        worst: Severity = "critical" if row.outbox_full else "warning"
        step = "" if pause else describe_first_step("queue_wait")
        yield Fault("notice" if pause else worst, wait, step, impact=f"{format_count(events, 'complex event')} wait.")


def _format_reason(text: str | None) -> str:
    return (text or "no reason given").rstrip(".")
