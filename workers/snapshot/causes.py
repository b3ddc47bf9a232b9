"""The causes of problems: who holds or lost a shared resource, and whose problems follow from that.

Shared resources are the worker slots of a pool, a node, the pipeline, and the control worker. Each cause is a subject;
its sentence names the cause without figures that change each second, its impact names the victims with numbers and
limits, and its actions end the cause or its impact. A subject that a cause explains keeps its severity and is no
finding: its state points at the cause (`within`). Of two causes of a subject, the first in `FINDERS` counts.
"""

from collections.abc import Mapping
from dataclasses import replace

from common.stored_document import replace_fields
from workers.documents.states import SEVERITIES, Severity, SubjectFinding, SubjectState
from workers.snapshot.judgement import SIGNS, WORDS, WatchedSnapshot, is_better
from workers.snapshot.queue_causes import QUEUE_FINDERS
from workers.snapshot.resource_causes import RESOURCE_FINDERS
from workers.snapshot.scene import DEAD_LETTERS, Cause, Scene, describe_backlog, list_backlog_sentences

FINDERS = (*RESOURCE_FINDERS, *QUEUE_FINDERS)


def explain_causes(watched: WatchedSnapshot, states: Mapping[str, SubjectState]) -> dict[str, SubjectState]:
    """Return the states with their causes: a cause says what it explains, the others point at it."""
    scene = Scene(watched, states)
    causes: dict[str, Cause] = {}
    explained: dict[str, str] = {}
    for find in FINDERS:
        for cause in find(scene):
            if cause.is_independent and cause.subject in explained:
                first = explained.pop(cause.subject)
                others = tuple(subject for subject in causes[first].affected if subject != cause.subject)
                causes[first] = replace(causes[first], affected=others)
            root = explained.get(cause.subject, cause.subject)
            if root == cause.subject and root not in causes:
                causes[root] = replace(cause, affected=())
            mine = [
                subject
                for subject in cause.affected
                if subject in states and subject not in causes and subject not in explained and states[subject].finding
            ]
            explained |= dict.fromkeys(mine, root)
            causes[root] = replace(causes[root], affected=(*causes[root].affected, *mine))
    named = {subject: _name_cause(scene, cause) for subject, cause in causes.items() if subject in states}
    pointed = {
        subject: replace_fields(states[subject], within=root) for subject, root in explained.items() if root in named
    }
    return {**states, **pointed, **named}


def _name_cause(scene: Scene, cause: Cause) -> SubjectState:
    """Return the state of a cause; it is as severe as the worst that it explains."""
    state = scene.states[cause.subject]
    severities = [state.severity, *(scene.states[subject].severity for subject in cause.affected)]
    worst: Severity = max(severities, key=SEVERITIES.index)
    severity: Severity = worst if cause.severity is None else cause.severity
    found = SubjectFinding(
        subject=cause.subject,
        severity=severity,
        sign=SIGNS[severity],
        sentence=cause.sentence,
        impact=cause.impact,
        actions=list(cause.actions),
        step=f"{cause.actions[0].words}." if cause.actions else "",
    )
    ordered = sorted([found, *_list_other_findings(state, cause)], key=_rank, reverse=True)
    first = ordered[0]
    sign, word = state.sign, state.word
    if (first.severity != state.severity and (sign is None or sign == SIGNS[state.severity])) or (
        sign is not None and is_better(sign, first.severity)
    ):
        sign, word = SIGNS[first.severity], WORDS[first.severity]
    return replace_fields(
        state,
        severity=first.severity,
        sign=sign,
        word=word,
        since=scene.watched.find_start(state.kind, state.name, first.severity, sign, state.stale),
        finding=first.sentence,
        impact=first.impact,
        affected=list(cause.affected),
        independent=cause.is_independent,
        actions=first.actions,
        step=first.step,
        also=ordered[1:],
    )


def _list_other_findings(state: SubjectState, cause: Cause) -> list[SubjectFinding]:
    """Return the problems of a subject that have nothing to do with this cause of it."""
    if state.kind != "queue":
        return list(state.also)
    own = SubjectFinding(
        subject=cause.subject,
        severity=state.severity,
        sign=SIGNS[state.severity],
        sentence=state.finding,
        impact=state.impact,
        step=state.step,
    )
    replaced = {"", cause.sentence, *cause.replaces, *list_backlog_sentences(state.name)}
    # Dead letters of an earlier problem wait for a person, and are less urgent than a present cause.
    resting = describe_backlog(state.name, DEAD_LETTERS)
    return [
        replace_fields(finding, severity="notice", sign=SIGNS["notice"]) if finding.sentence == resting else finding
        for finding in (own, *state.also)
        if finding.sentence not in replaced
    ]


def _rank(finding: SubjectFinding) -> int:
    return SEVERITIES.index(finding.severity)
