"""Alert rules: read, previewed, and changed."""

from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest
from django.utils import timezone

from console.actions import alerts
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import RequestBody
from console.api.schemas.alerts.alert_rules import PredictedAlert, RuleDetail, RuleList, RulePreview, RuleRow
from console.connections.control_server import control
from workers.alerts.evaluation import preview
from workers.alerts.lifecycle.models import AlertRule
from workers.alerts.rules import rules

router = Router(tags=["alerts"])


class RuleFields(RequestBody):
    """Fields of a rule; omitted fields keep their values. `revision`: of the rule as it was read."""

    fields: dict[str, Any]
    reason: str = ""
    revision: int | None = None


@router.get("/alert-rules", response=RuleList, summary="List alert rules")
def list_rules(request: HttpRequest) -> RuleList:
    actor_for(request, "plant.view")
    return {"rules": [_build_rule_row(alert_rule) for alert_rule in AlertRule.objects.order_by("name")]}


@router.get(
    "/alert-rules/{name}",
    response=RuleDetail,
    summary="Get an alert rule, and when it would have fired in the last 24 h",
)
def get_rule(request: HttpRequest, name: str) -> RuleDetail:
    actor_for(request, "plant.view")
    rule = AlertRule.objects.filter(name=name).first()
    if rule is None:
        raise Http404(f"Rule {name} is unknown; GET /api/v1/alert-rules lists the rules.")
    return {**_build_rule_row(rule), "preview": _preview(rule)}


@router.post("/alert-rules/{name}", response=RuleRow, summary="Create or change an alert rule")
def change_rule(request: HttpRequest, name: str, body: RuleFields) -> RuleRow:
    actor = actor_for(request, "alert_rule.change")
    now = timezone.now()
    made = alerts.define_rule(actor, name, body.fields, reason=body.reason, now=now, revision=body.revision)
    return _build_rule_row(made)


@router.post("/alert-rules/{name}/preview", response=RulePreview, summary="Preview an alert rule without changing it")
def preview_rule(request: HttpRequest, name: str, body: RuleFields) -> RulePreview:
    actor_for(request, "plant.view")
    known = AlertRule.objects.filter(name=name).first()
    fields = rules.validate_fields(body.fields, {key: getattr(known, key) for key in rules.FIELDS} if known else None)
    return _preview(AlertRule(name=name, **fields))


def _build_rule_row(rule: AlertRule) -> RuleRow:
    return convert(RuleRow, rules.document(rule))


def _preview(rule: AlertRule) -> RulePreview:
    previewed = preview.preview(rule, control(), settings.WEIR_DATA, timezone.now())
    fired: list[PredictedAlert] = [
        {"labels": dict(fired_alert.labels), "at": fired_alert.at, "until": fired_alert.until}
        for fired_alert in previewed.fired
    ]
    return {"sentence": previewed.format_sentence(), "stored_seconds": previewed.stored_seconds, "fired": fired}
