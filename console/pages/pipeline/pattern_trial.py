"""Trials of patterns on the page of a declaration. They use the posted text of the editor, which isn't saved."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import pattern_trials
from console.input.form_values import find_line_number
from controllers.framework.reason import capitalize, format_count
from workers.pipeline.declaration.pattern_trial import PatternTrial, TriedEvent, TriedMatch
from workers.pipeline.patterns.explanation import format_value


@require_POST
@requires("pipeline.declare")
def run_trial(request: HttpRequest, name: str) -> HttpResponse:
    """Return the matches of a pattern in posted events, and why the other events don't match.

    Posted: text, pattern, events. The result is {"sentence", "notes", "matches", "events"}; for invalid input, it is
    {"errors", "line"}, and the status is 422. line: line number in the text.
    """
    posted = request.POST
    try:
        trial = pattern_trials.try_pattern(
            actor_of(request), _get_text(posted), posted.get("pattern", ""), posted.get("events", "")
        )
    except BadInput as error:
        return _reject(error)
    matches = [_describe_match(number, match) for number, match in enumerate(trial.matches, 1)]
    events = [_describe_event(event) for event in trial.events]
    return JsonResponse(
        {"sentence": _summarize(trial), "notes": list(trial.notes), "matches": matches, "events": events}
    )


@require_POST
@requires("pipeline.declare")
def load_events(request: HttpRequest, name: str) -> HttpResponse:
    """Return the newest waiting events of the queues in the posted text: {"sentence", "events", "notes"}."""
    try:
        newest = pattern_trials.load_newest_events(actor_of(request), _get_text(request.POST))
    except BadInput as error:
        return _reject(error)
    said = "No events are waiting in the queues. Paste events, or choose a file."
    if newest.count:
        said = f"Loaded {format_count(newest.count, 'waiting event')}. The view is recorded in the audit log."
    return JsonResponse({"sentence": said, "events": newest.text, "notes": list(newest.notes)})


def _get_text(posted: Mapping[str, str]) -> str:
    return posted.get("text", "").replace("\r\n", "\n")


def _reject(error: BadInput) -> HttpResponse:
    is_event_line = error.field.startswith("line ")
    field = f"events, {error.field}" if is_event_line else error.field
    line = None if is_event_line else find_line_number(error.message)
    return JsonResponse({"errors": {capitalize(field): [error.message]}, "line": line}, status=422)


def _summarize(trial: PatternTrial) -> str:
    matched = sum(event.match is not None for event in trial.events)
    found = {0: "No matches", 1: "1 match"}.get(len(trial.matches), f"{len(trial.matches)} matches")
    return f"{found}. {matched} of {format_count(len(trial.events), 'event')} matched."


def _describe_match(number: int, match: TriedMatch) -> dict[str, Any]:
    measures = [{"name": name, "value": format_value(value)} for name, value in match.measures.items()]
    return {
        "number": number,
        "events": list(match.events),
        "measures": measures,
        "conditions": list(match.conditions),
        "suppressed": match.suppressed,
    }


def _describe_event(event: TriedEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "time": event.time,
        "type": event.type,
        "key": event.key,
        "match": event.match,
        "symbol": event.symbol,
        "reasons": list(event.reasons),
    }
