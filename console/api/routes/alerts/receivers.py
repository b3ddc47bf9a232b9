"""Receivers: read, changed, and tested."""

from typing import Any

from django.http import Http404, HttpRequest
from django.utils import timezone

from console.accounts.access import Actor
from console.actions import alerts
from console.api.answer.router import Router
from console.api.answer.schema import convert
from console.api.request.authentication import actor_for
from console.api.request.bodies import Reason, RequestBody
from console.api.routes.alerts.alert_documents import convert_to_timestamp
from console.api.schemas.alerts.receivers import MessageRow, ReceiverDeletion, ReceiverList, ReceiverRow
from console.input.shown_digest import digest_of
from workers.alerts.lifecycle.models import AlertWatch, Message, OnCallFeed, Receiver

router = Router(tags=["alerts"])


class NewReceiver(RequestBody):
    """A receiver.

    settings: email {"addresses"}, webhook and alertmanager {"url", "secret_environment"}, apprise
    {"secret_environment", "answers_environment"}, schedule {"secret_environment", "otherwise"}, browser {}. Omitted
    fields and null keep their values; a new receiver is notified of resolved alerts, gets no reports, and is enabled.
    digest: of the receiver as it was read; if it has changed since, the request is rejected.
    """

    channel: str
    settings: dict[str, Any] = {}
    tells_resolved: bool | None = None
    gets_reports: bool | None = None
    enabled: bool | None = None
    digest: str = ""
    reason: str


@router.get("/receivers", response=ReceiverList, summary="List receivers and their delivery status")
def list_receivers(request: HttpRequest) -> ReceiverList:
    actor = actor_for(request, "plant.view")
    receivers = Receiver.objects.order_by("name")
    watch = AlertWatch.objects.filter(pk=1).first() or AlertWatch()
    return {
        "receivers": [
            {**_build_receiver_row(actor, receiver), "messages": _list_recent_messages(receiver)}
            for receiver in receivers
        ],
        "dead_mans_switch": {"called_at": watch.alive_at, "error": watch.alive_error},
    }


@router.post("/receivers/{name}", response=ReceiverRow, summary="Create or change a receiver")
def change_receiver(request: HttpRequest, name: str, body: NewReceiver) -> ReceiverRow:
    actor = actor_for(request, "receiver.change")
    return _build_receiver_row(actor, alerts.define_receiver(actor, name, **body.dict()))


@router.post("/receivers/{name}/delete", response=ReceiverDeletion, summary="Delete a receiver that no rule uses")
def delete_receiver(request: HttpRequest, name: str, body: Reason) -> ReceiverDeletion:
    actor = actor_for(request, "receiver.change")
    alerts.delete_receiver(actor, _get_receiver_or_404(name), reason=body.reason)
    return {"deleted": name}


@router.post("/receivers/{name}/test", response=MessageRow, summary="Send a test message")
def test_receiver(request: HttpRequest, name: str) -> MessageRow:
    actor = actor_for(request, "receiver.test")
    return _build_message_row(alerts.test_receiver(actor, _get_receiver_or_404(name), now=timezone.now()))


def _build_receiver_row(actor: Actor, receiver: Receiver) -> ReceiverRow:
    row = {**alerts.describe_receiver_for(actor, receiver), "digest": digest_of(alerts.describe_receiver(receiver))}
    if receiver.channel == Receiver.Channel.SCHEDULE:
        feed = OnCallFeed.objects.filter(receiver=receiver).first()
        row["broken_events"] = feed.broken if feed else []
    return convert(ReceiverRow, row)


def _get_receiver_or_404(name: str) -> Receiver:
    receiver = Receiver.objects.filter(name=name).first()
    if receiver is None:
        raise Http404(f"Receiver {name} is unknown; GET /api/v1/receivers lists the receivers.")
    return receiver


def _list_recent_messages(receiver: Receiver) -> list[MessageRow]:
    return [_build_message_row(message) for message in receiver.messages.order_by("-pk")[:5]]


def _build_message_row(message: Message) -> MessageRow:
    return {
        "key": message.key,
        "state": message.state,
        "tries": message.tries,
        "title": message.content["title"],
        "created_at": message.created_at.timestamp(),
        "sent_at": convert_to_timestamp(message.sent_at),
        "error": message.error,
    }
