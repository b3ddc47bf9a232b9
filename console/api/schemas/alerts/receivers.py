"""Receivers and their messages."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, one_of
from workers.alerts.lifecycle.models import Message, Receiver


class MessageRow(ApiAnswer):
    """One message to one receiver."""

    key: Annotated[str, Field(description="Equal in each attempt.")]
    state: Annotated[str, one_of(Message.State.values)]
    tries: int
    title: str
    created_at: Instant
    sent_at: Instant | None
    error: str


class ReceiverRow(ApiAnswer):
    """A receiver; fields of other channels are absent."""

    name: str
    channel: Annotated[str, one_of(Receiver.Channel.values)]
    addresses: NotRequired[Annotated[list[str], Field(description="Of e-mail.")]]
    url: NotRequired[
        Annotated[
            str,
            Field(
                description=(
                    "Of a webhook or an Alertmanager; up to its host for callers who may not change it."
                )
            ),
        ]
    ]
    secret_environment: NotRequired[
        Annotated[
            str,
            Field(
                description="Variable with a webhook's secret, an Alertmanager's token, or apprise's address."
            ),
        ]
    ]
    answers_environment: NotRequired[
        Annotated[str, Field(description="Variable with the secret that authenticates a chat's answers.")]
    ]
    otherwise: NotRequired[
        Annotated[str, Field(description="Of an on-call calendar: who is notified while nobody is on call.")]
    ]
    broken_events: NotRequired[
        Annotated[list[str], Field(description="Of a schedule: events that are skipped, and why.")]
    ]
    tells_resolved: bool
    gets_reports: Annotated[bool, Field(description="Whether it gets the weekly report.")]
    enabled: bool
    digest: Annotated[
        str, Field(description=("Digest of its current state: a change that names an older one is rejected."))
    ]


class ChatReply(ApiAnswer):
    """A message in the format of the chat service."""

    text: NotRequired[
        Annotated[str, Field(description="Of Slack, Mattermost, Rocket.Chat, Teams and Telegram.")]
    ]
    content: NotRequired[Annotated[str, Field(description="Of Zulip.")]]
    response_type: NotRequired[str]
    type: NotRequired[str]
    method: NotRequired[str]
    chat_id: NotRequired[int | None]
    challenge: NotRequired[Annotated[str, Field(description="Of Slack's check of the address.")]]


class ReceiverWithMessages(ReceiverRow):
    messages: Annotated[list[MessageRow], Field(description="The last 5.")]


class DeadMansSwitchStatus(ApiAnswer):
    """The last call of the dead man's switch address."""

    called_at: Annotated[
        datetime | None, Field(description="null: never; none is set, or it was never possible.")
    ]
    error: Annotated[str, Field(description="Why the last call failed; empty: it succeeded, or none is set.")]


class ReceiverList(ApiAnswer):
    receivers: list[ReceiverWithMessages]
    dead_mans_switch: DeadMansSwitchStatus


class ReceiverDeleted(ApiAnswer):
    deleted: str
