"""User actions on dead letters: requeue, fix, and discard; authorized and audited.

A letter that has changed since it was shown is skipped, and the others continue: the answer lists it with the reason.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

from common.errors import BadInput, MalformedEvent, NodeFull, NodeUnavailable
from common.stored_document import Events, describe
from console.accounts.access import Actor, require_permission
from console.actions import dead_letters
from console.actions.dead_letters import DeadLetterFilter, Name, NamedDeadLetter
from console.audit import audit_log
from controllers.framework.reason import are, format_count, format_names
from queues.events.block import from_events, parse_event
from queues.segments.dead_letters import REFUSED, WORDS, DeadLetters
from queues.segments.segment import CHUNK
from workers.steering.overrides import read_reason

ACTIONS = ("requeue", "discard")
AUDITED = 50
NAMED = 5
EDITABLE = ("time", "type", "source", "key", "value", "attributes")


class RefusedDeadLetter(TypedDict):
    letter: str
    why: str


@dataclass(frozen=True)
class DeadLetterReport:
    """The result of an action on dead letters."""

    action: Annotated[str, describe(values=ACTIONS)]
    letters: int
    events: Events
    refused: list[RefusedDeadLetter]

    def format_sentence(self) -> str:
        verb = "requeued" if self.action == "requeue" else "discarded permanently"
        said = f"{format_count(self.letters, 'dead letter')} ({format_count(self.events, 'event')}) {verb}."
        if not self.refused:
            return said
        named = "; ".join(f"{refusal['letter']} {refusal['why']}" for refusal in self.refused[:NAMED])
        more = len(self.refused) - NAMED
        return f"{said} Failed: {named}{f'; and {more:,} more' if more > 0 else ''}."


def act(actor: Actor, action: str, names: Sequence[Name], reason: str, confirm: str = "") -> DeadLetterReport:
    """Requeue or discard dead letters as they were shown. To discard, `confirm` is the name of their queue.

    Raises an error if nothing was done: `BadInput`, or `NodeUnavailable` or `NodeFull` of the first node that failed.
    """
    if action not in ACTIONS:
        raise BadInput("action", f"must be {' or '.join(ACTIONS)}.")
    queues = sorted({name.queue for name in names})
    require_permission(actor, f"dead_letters.{action}", queues)
    why = read_reason(reason)
    if action == "discard":
        if len(queues) != 1:
            raise BadInput("queue", "must be a single queue: to confirm the discard, enter its name.")
        if confirm != queues[0]:
            raise BadInput("confirm", f"must be the name {queues[0]}: discarded dead letters can't be restored.")
    # The audit entry is written first: a node that fails halfway must not leave a change without an author.
    noted = functools.partial(audit_log.record, actor, f"dead_letters.{action}", ", ".join(queues), reason=why)
    noted(before={"letters": len(names), "first": [str(name) for name in names[:AUDITED]]})
    report, failed = _report_result(action, names)
    noted(after={"letters": report.letters, "events": report.events, "refused": report.refused[:AUDITED]})
    if not report.letters:
        if failed is not None:
            raise failed
        raise BadInput("letter", report.format_sentence().partition("Failed: ")[2])
    return report


def list_matching(actor: Actor, criteria: DeadLetterFilter, through: datetime, digest: str, count: int) -> list[Name]:
    """Return the dead letters that a filter showed the actor, up to an instant.

    Raises `BadInput` if they have changed: the action must apply to the letters that were counted.
    """
    letters = dead_letters.search(criteria, actor)
    if silent := letters.unreachable:
        raise BadInput(
            "letter",
            f"list is incomplete: {format_names(silent)} {are(silent)} not responding. Choose dead letters one by one.",
        )
    there = letters.limit_to(through)
    if there.digest != digest:
        raise BadInput(
            "letter",
            (
                f"list has changed: {count:,} were shown and {len(there.letters):,} remain. The others "
                "were requeued, fixed, or discarded in the meantime. Open the list again."
            ),
        )
    return [letter.name for letter in there.letters]


def fix(actor: Actor, name: Name, row: int, event: Mapping[str, Any], reason: str, now: datetime) -> NamedDeadLetter:
    """Set values of one event of a letter; its id stays. The audit log has the previous event."""
    require_permission(actor, "dead_letters.fix", [name.queue])
    why = read_reason(reason)
    held = dead_letters.find(name.queue, name.node, name.id)
    if held is None:
        raise BadInput("letter", f"{name.id} was requeued, fixed, or discarded in the meantime.")
    if held.is_damaged:
        raise BadInput("letter", f"{name.id} {WORDS[REFUSED]}.")
    if held.unreadable:
        raise BadInput("event", "is unreadable, so it can't be changed: download it, or discard it.")
    if not 0 <= row < len(held.events):
        raise BadInput("event", f"must be a position from 0 to {len(held.events) - 1}, not {row}.")
    before = held.events[row]
    # An omitted field keeps its value; an empty one (null) becomes empty.
    wanted = {field: before[field] for field in EDITABLE} | dict(event)
    mended = _validate_event({**wanted, "id": before["id"]}, now)
    if mended == before:
        raise BadInput("event", "is unchanged. Change a field first.")
    batch = from_events([*held.events[:row], mended, *held.events[row + 1 :]], _convert_to_microseconds(now))
    target = f"{name.queue} on {name.node}"
    noted = functools.partial(audit_log.record, actor, "dead_letters.fix", target, reason=why)
    noted(before={"letter": name.id, "event": _convert_event_to_json(before)})
    new_id = dead_letters.place_of(name).amend(name.id, name.digest, batch)
    noted(after={"letter": new_id, "event": _convert_event_to_json(mended)})
    letter = dead_letters.find(name.queue, name.node, new_id)
    if letter is None:
        raise BadInput("letter", f"{new_id} was immediately requeued or discarded by another user.")
    return letter


def _report_result(action: str, names: Sequence[Name]) -> tuple[DeadLetterReport, NodeUnavailable | NodeFull | None]:
    """Return what was done, and the first node's error; the results of other nodes count."""
    letters, events = 0, 0
    refused: list[RefusedDeadLetter] = []
    failed: NodeUnavailable | NodeFull | None = None
    for _, node, place, mine in list(dead_letters.group_by_place(names)):
        answers, error = _run_at(place, action, mine)
        failed = failed or error
        for dead_id, answer in answers.items():
            if isinstance(answer, int) and answer > 0:
                letters, events = letters + 1, events + answer
            else:
                why = WORDS[answer] if isinstance(answer, int) else answer
                refused.append({"letter": f"{node} {dead_id}", "why": why})
    return DeadLetterReport(action, letters, events, refused), failed


def _run_at(
    place: DeadLetters, action: str, mine: Mapping[str, str]
) -> tuple[dict[str, int | str], NodeUnavailable | NodeFull | None]:
    """Return the answer by dead id, or why there is none.

    A node that fails in the middle has done the earlier ones, and is not asked for more.
    """
    answers: dict[str, int | str] = {}
    names = list(mine)
    for start in range(0, len(names), CHUNK):
        chunk = {name: mine[name] for name in names[start : start + CHUNK]}
        try:
            answers |= getattr(place, action)(chunk)
        except (NodeUnavailable, NodeFull) as error:
            full, why = isinstance(error, NodeFull), str(error).rstrip(".")
            asked = dict.fromkeys(chunk, f"{'unchanged' if full else 'state unknown'}: {why}")
            return {**dict.fromkeys(mine, f"unchanged: {why}"), **answers, **asked}, error
    return answers, None


def _validate_event(event: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the event with validated cells, as it will be read back."""
    for field in event:
        if field not in ("id", *EDITABLE):
            raise MalformedEvent(str(field), f"is unknown. The fields that you can change are {', '.join(EDITABLE)}.")
    parse_event(event, _convert_to_microseconds(now))
    return dict(from_events([event], _convert_to_microseconds(now)).to_pylist()[0])


def _convert_event_to_json(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.isoformat() if isinstance(value, datetime) else value for key, value in event.items()}


def _convert_to_microseconds(moment: datetime) -> int:
    return round(moment.astimezone(UTC).timestamp() * 1e6)
