"""Silences: read, previewed, added, and ended."""

from django.http import Http404, HttpRequest
from django.utils import timezone
from ninja import Status

from console.actions import alerts
from console.api.answer.router import Router
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.routes.alerts.alert_documents import build_alert_document
from console.api.schemas.alerts.silences import SilenceEnd, SilenceList, SilencePreview, SilenceRow
from console.input.row_id import Id
from workers.alerts.lifecycle.models import Silence
from workers.alerts.rules import rules, silences
from workers.alerts.rules.silences import list_active_silences

router = Router(tags=["alerts"])


class NewSilence(RequestBody):
    """matchers: [{"label", "is": "=", "!=" or "~", "value"}], all of which must match."""

    matchers: list[dict[str, str]]
    reason: str
    minutes: float


class Matchers(RequestBody):
    matchers: list[dict[str, str]]


@router.get("/silences", response=SilenceList, summary="List active silences")
def list_silences(request: HttpRequest) -> SilenceList:
    actor_for(request, "plant.view")
    return {
        "silences": [
            _silence(active_silence) for active_silence in list_active_silences(timezone.now()).select_related("owner")
        ]
    }


@router.post("/silences", response={201: SilenceRow}, summary="Silence matching alerts")
def add_silence(request: HttpRequest, body: NewSilence) -> Status[SilenceRow]:
    actor = actor_for(request, "silence.set")
    made = alerts.silence(actor, now=timezone.now(), **body.dict())
    return Status(201, _silence(made))


@router.post("/silences/preview", response=SilencePreview, summary=("Preview a silence without creating it"))
def preview_silence(request: HttpRequest, body: Matchers) -> SilencePreview:
    actor = actor_for(request, "plant.view")
    preview = silences.preview_hidden_alerts(
        rules.read_matchers(body.matchers, least=1),
        timezone.now(),
        covers_integrity=alerts.may_silence_integrity(actor),
    )
    return {
        "open": [build_alert_document(alert) for alert in preview["open"]],
        "lately": preview["lately"],
        "of": preview["of"],
    }


@router.post("/silences/{silence_id}/end", response=SilenceEnd, summary="End a silence now")
def end_silence(request: HttpRequest, silence_id: Id) -> SilenceEnd:
    actor = actor_for(request, "silence.end")
    silence = Silence.objects.filter(pk=silence_id).first()
    if silence is None:
        raise Http404(f"Silence {silence_id} is unknown; GET /api/v1/silences lists the silences.")
    return {"ended": alerts.end_silence(actor, silence, now=timezone.now())}


def _silence(silence: Silence) -> SilenceRow:
    return {
        "id": silence.pk,
        "matchers": silence.matchers,
        "reason": silence.reason,
        "owner": silence.owner.get_username(),
        "expires_at": silence.expires_at.timestamp(),
    }
