"""Receivers and their messages."""

from datetime import datetime
from typing import Annotated, NotRequired

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, build_enum_field
from workers.alerts.lifecycle.models import Message, Receiver


class MessageRow(ApiAnswer):
    """One message to one receiver."""

    key: Annotated[str, Field(description="Idempotency key; the same for all attempts.")]
    state: Annotated[str, build_enum_field(Message.State.values)]
    tries: int
    title: str
    created_at: Instant
    sent_at: Instant | None
    error: str


class ReceiverRow(ApiAnswer):
    """A receiver; fields of other channels are absent."""

    name: str
    channel: Annotated[str, build_enum_field(Receiver.Channel.values)]
    addresses: NotRequired[Annotated[list[str], Field(description="Email addresses.")]]
    url: NotRequired[
        Annotated[
            str,
            Field(description=("Address of a webhook or Alertmanager; only the host for callers who can't change it.")),
        ]
    ]
    secret_environment: NotRequired[
        Annotated[str, Field(description="Environment variable with the secret, the token, or the Apprise address.")]
    ]
    answers_environment: NotRequired[
        Annotated[str, Field(description="Environment variable with the secret that authenticates chat replies.")]
    ]
    otherwise: NotRequired[
        Annotated[str, Field(description="Receiver to notify while nobody is on call; on-call calendars only.")]
    ]
    broken_events: NotRequired[Annotated[list[str], Field(description="Calendar events that are skipped, and why.")]]
    tells_resolved: bool
    gets_reports: Annotated[bool, Field(description="Whether the receiver gets the weekly report.")]
    enabled: bool
    digest: Annotated[
        str, Field(description=("Digest of the current state. A change with an older digest is rejected."))
    ]


class ChatReply(ApiAnswer):
    """A message in the format of the chat service."""

    text: NotRequired[
        Annotated[str, Field(description="Text for Slack, Mattermost, Rocket.Chat, Teams, and Telegram.")]
    ]
    content: NotRequired[Annotated[str, Field(description="Text for Zulip.")]]
    response_type: NotRequired[str]
    type: NotRequired[str]
    method: NotRequired[str]
    chat_id: NotRequired[int | None]
    challenge: NotRequired[Annotated[str, Field(description="Reply to Slack's URL verification.")]]


class ReceiverWithMessages(ReceiverRow):
    messages: Annotated[list[MessageRow], Field(description="The last 5 messages.")]


class DeadMansSwitchStatus(ApiAnswer):
    """The last call of the dead man's switch address."""

    called_at: Annotated[datetime | None, Field(description="null: no address is set, or no call succeeded.")]
    error: Annotated[str, Field(description="Why the last call failed; empty: it succeeded, or no address is set.")]


class ReceiverList(ApiAnswer):
    receivers: list[ReceiverWithMessages]
    dead_mans_switch: DeadMansSwitchStatus


class ReceiverDeletion(ApiAnswer):
    deleted: str
