"""Silences: active and expired. A new silence is previewed with the alerts that it hides.

Matchers are posted as rows of label, operator, and value. A row without a value is ignored.
"""

from collections.abc import Collection
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from common.errors import BadInput
from console.accounts.access import actor_of, requires
from console.actions import alerts
from console.input.form_values import parse_minutes, parse_row_id
from console.pages.frame.page import (
    ActionResult,
    FormPage,
    UndoOffer,
    declare_action,
    declare_page,
    get_rejected_form,
    render_page,
)
from controllers.framework.reason import format_count
from workers.alerts.lifecycle.models import Alert, Silence
from workers.alerts.rules import rules
from workers.alerts.rules import silences as kept
from workers.alerts.rules.silences import list_active_silences

FIRST_LABELS = ("queue", "node", "loop", "severity")  # a form has a row for each


@dataclass(frozen=True)
class MatcherRow:
    """A row of a matcher form; without a value it is not a matcher yet."""

    label: str
    operator: str
    value: str


def read_matchers(posted: QueryDict) -> list[dict[str, str]]:
    """Return the matchers as typed, not checked yet."""
    columns = (posted.getlist(f"matcher-{name}") for name in ("label", "is", "value"))
    rows = [dict(zip(("label", "is", "value"), row, strict=True)) for row in zip(*columns, strict=False)]
    return [row for row in rows if row["value"].strip()]


def build_matcher_rows(matchers: list[dict[str, str]]) -> list[MatcherRow]:
    """Return all rows of a form: first the given matchers, then labels that are not matched yet."""
    filled = [MatcherRow(matcher["label"], matcher["is"], matcher["value"]) for matcher in matchers]
    taken = {row.label for row in filled}
    empty = [MatcherRow(label, "=", "") for label in FIRST_LABELS if label not in taken]
    return [*filled, *empty[: max(1, len(FIRST_LABELS) - len(filled))]]


MAX_ENDED = 25


@dataclass(frozen=True)
class ListedSilence:
    """A silence, its matchers in words, and the open alerts that it hides."""

    silence: Silence
    words: str
    hides: Collection[Alert] = ()


@dataclass(frozen=True, kw_only=True)
class SilencesPage(FormPage):
    """Active silences, expired silences, and the form for a new one."""

    TEMPLATE, NAME = "alerts/silences.html", "alert-rules"

    current: list[ListedSilence]
    ended: list[ListedSilence]
    rows: list[MatcherRow]
    labels: Collection[str]
    operators: Collection[str]


@declare_page("plant.view")
def silences_page(request: HttpRequest) -> HttpResponse:
    """Show the list of silences; `?alert=` fills in the form."""
    now, typed = timezone.now(), get_rejected_form(request).submitted
    current = [
        ListedSilence(
            active_silence,
            rules.format_matchers(active_silence.matchers),
            kept.preview_hidden_alerts(active_silence.matchers, now, covers_integrity=active_silence.covers_integrity)[
                "open"
            ],
        )
        for active_silence in list_active_silences(now).select_related("owner")
    ]
    over = Silence.objects.exclude(pk__in=[row.silence.pk for row in current]).select_related("owner")
    ended = over.order_by("-created_at")[:MAX_ENDED]
    page = SilencesPage(
        current=current,
        ended=[ListedSilence(silence, rules.format_matchers(silence.matchers)) for silence in ended],
        rows=build_matcher_rows(read_matchers(typed) if typed else _read_matchers(request)),
        labels=rules.LABELS,
        operators=rules.OPERATORS,
    )
    return render_page(request, page, "frame")


def _read_matchers(request: HttpRequest) -> list[dict[str, str]]:
    """Return the matchers of the alert that the address names."""
    asked = parse_row_id(request.GET.get("alert", ""))
    alert = None if asked is None else Alert.objects.filter(pk=asked).first()
    labels = kept.get_matchable_labels(alert) if alert else {}
    return [{"label": key, "is": "=", "value": labels[key]} for key in labels if key != "severity"][-4:]


@require_POST
@requires("plant.view")
def preview(request: HttpRequest) -> HttpResponse:
    """Return the alerts that the posted silence would hide.

    The result is {"sentence", "rows": [{"title", "url", "note"}]}. Nothing is changed.
    """
    try:
        read = rules.read_matchers(read_matchers(request.POST), least=1)
    except BadInput as error:
        return JsonResponse({"sentence": f"{error.message[:1].upper()}{error.message[1:]}", "rows": []})
    covers = alerts.may_silence_integrity(actor_of(request))
    hidden = kept.preview_hidden_alerts(read, timezone.now(), covers_integrity=covers)
    count = len(hidden["open"])
    now = f"would suppress {format_count(count, 'open alert') if count else 'no open alerts'}"
    week = f"would have matched {hidden['lately']} of {hidden['of']} alerts in the last 7 days"
    rows = [
        {"title": alert.title, "url": reverse("alert", args=[alert.pk]), "note": alert.severity}
        for alert in hidden["open"]
    ]
    return JsonResponse({"sentence": f"The silence {now}, and {week}.", "rows": rows})


@declare_action("silence.set", silences_page)
def add(request: HttpRequest) -> ActionResult:
    """Add a silence. Posted: matcher-label, matcher-is, matcher-value (rows), reason, minutes."""
    made = alerts.silence(
        actor_of(request),
        read_matchers(request.POST),
        reason=request.POST.get("reason", ""),
        minutes=parse_minutes(request.POST),
        now=timezone.now(),
    )
    message = f"Silenced until {made.expires_at:%a %H:%M} UTC: {rules.format_matchers(made.matchers)}."
    undo: UndoOffer = {"url": reverse("silence-end", args=[made.pk]), "fields": {}}
    return ActionResult(message, reverse("silences"), {"silence": made.pk, "undo": undo})


@declare_action("silence.end", silences_page)
def end(request: HttpRequest, silence_id: int) -> ActionResult:
    """End a silence. Nothing is posted; ending twice is no error."""
    silence = get_object_or_404(Silence, pk=silence_id)
    ended = alerts.end_silence(actor_of(request), silence, now=timezone.now())
    return ActionResult("Silence ended." if ended else "The silence had already ended.", reverse("silences"))
