"""Answers about alerts, silences, rules and receivers; and about service levels."""

from datetime import date, datetime
from typing import Annotated, get_args

from pydantic import Field

from console.api.answer.schema import ApiAnswer, Instant, Labels, Seconds, Share, one_of
from workers.alerts.delivery.notification import NoticeState
from workers.alerts.lifecycle.models import Alert, AlertEvent, AlertRule, Message, Receiver
from workers.objectives.models import Objective

Severity = Annotated[str, one_of(AlertRule.Severity.values)]
State = Annotated[str, one_of(Alert.State.values)]


class OpenAlert(ApiAnswer):
    """An alert as the snapshot has it."""

    id: int
    rule: str
    condition: str = Field(description="What its rule watches; empty: the rule is gone.")
    title: str
    severity: Severity
    state: State
    labels: Labels
    sentence: str = Field(description="What is wrong, with its figures.")
    since: Instant | None
    under: int | None = Field(description="The alert that explains it.")
    explanation: str = Field("", description="The pause or drain that explains it, in words.")
    quiet: Annotated[str, one_of(("explained", "paused", "silenced", "acknowledged", "snoozed"))] | None = (
        Field(description="Why nobody is notified of it; null: somebody is.")
    )
    quiet_until: Instant | None
    acknowledged_by: str | None
    value: float | None = Field(description="Now, in the unit of its condition.")
    round: int = Field(description="How often its escalation began.")
    step: int = Field(description="The next step of its escalation.")
    announce: str | None = Field(description="What a browser shows once.")


class AlertRow(OpenAlert):
    """An alert with what it did."""

    impact: str
    worst: float | None = Field(description="In the unit of its condition.")
    threshold: float
    came_back: int = Field(description="How often it came back soon after its end.")
    resolved_at: Instant | None


class AlertList(ApiAnswer):
    alerts: list[AlertRow]


class AlertHappening(ApiAnswer):
    """What happened to an alert, or what somebody wrote to it."""

    at: Instant
    kind: Annotated[str, one_of(AlertEvent.Kind.values)]
    by: str | None
    text: str


class LoopsTried(ApiAnswer):
    """What control loops did about the alert."""

    entries: list[int] = Field(description="The latest actions in the ledger, those since its onset first.")
    advice: list[int] = Field(description="Entries of what loops in mode advise or hold would have done.")
    plans: list[int]
    actions: int
    effective: int = Field(description="How many of the actions helped.")
    words: str


class ReportedRow(ApiAnswer):
    """An alert that somebody else's Alertmanager reported."""

    source: str = Field(description="The token that brought it.")
    name: str
    severity: str
    labels: Labels
    summary: str
    description: str
    link: str = Field(description="Where it comes from; empty: not known.")
    began_at: datetime
    ended_at: datetime | None = Field(description="null: it is firing there.")
    reported_at: datetime = Field(description="Last.")


class ReportedList(ApiAnswer):
    alerts: list[ReportedRow]


class ReportTaken(ApiAnswer):
    """What was taken of a report."""

    stored: int
    own: int = Field(description="That were Weir's own alerts, come back.")


class NoticeRow(ApiAnswer):
    """How it stands with one receiver of an alert."""

    receiver: str
    channel: str = Field(description="Empty: there is no such receiver any more.")
    state: Annotated[str, one_of(get_args(NoticeState))]
    words: str
    at: datetime | None = Field(description="When it was notified, or will be.")


class NotificationDetail(ApiAnswer):
    """Who was notified of an alert, and why nobody was."""

    nobody: bool
    reasons: list[str] = Field(description="Why nobody was notified; none where somebody was.")
    receivers: list[NoticeRow]


class AlertDetail(AlertRow):
    """One alert: what happened to it, who was notified, what was tried, what others reported meanwhile."""

    situation: str
    notification: NotificationDetail
    tried: LoopsTried
    events: list[AlertHappening]
    reported: list[ReportedRow] = Field(description="The likeliest to be about the same first.")


class ChangeRow(ApiAnswer):
    """What was changed."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: str = Field(description="Its row, such as override:12; empty where it has none.")
    parts: list[str] = Field(description="What it touches, such as queue/alert; none: the whole plant.")


class ChangeList(ApiAnswer):
    changes: list[ChangeRow] = Field(description="The newest first.")


class IncidentChangeRow(ApiAnswer):
    """A change before an incident, with how near it is and how often its kind came before."""

    kind: str
    at: datetime
    words: str
    by: str
    ref: str = Field(description="Its row, such as override:12; empty where it has none.")
    steps: int | None = Field(description="Steps upstream of what is disturbed; null: none is known.")
    delay_seconds: Seconds = Field(description="From the change to the onset.")
    weight: float = Field(description="Of the ranking; the greater the likelier.")
    before: int = Field(description="Earlier incidents of this condition that such a change came before.")
    incidents: int = Field(description="How many earlier incidents that rests on.")
    url: str = Field(description="Where to read on.")
    undo: str = Field(description="What its button says that undoes it; empty: there is none.")


class IncidentChanges(ApiAnswer):
    """What changed before an incident, the likeliest cause first."""

    alert: int
    onset: datetime
    reach_seconds: Seconds = Field(description="How far back was searched.")
    changes: list[IncidentChangeRow]


class FollowUpRow(ApiAnswer):
    """What is to be done after an incident."""

    id: int
    alert: int
    text: str
    owner: str = Field(description="A user name; empty: nobody yet.")
    due_on: date | None
    created_at: datetime
    done_at: datetime | None = Field(description="null: it is open.")


class FollowUpList(ApiAnswer):
    follow_ups: list[FollowUpRow] = Field(description="Those that are open, the soonest due first.")


class IncidentEventRow(ApiAnswer):
    """What was at an instant of an incident."""

    at: datetime
    kind: Annotated[str, one_of(("change", "alert", "loop", "plan", "person", "note"))]
    words: str
    by: str
    url: str


class IncidentDetail(ApiAnswer):
    """What is kept of an incident beside its alert."""

    alert: int
    severity: Severity = Field(description="As a person says, else as its rule says.")
    roles: dict[str, str] = Field(description="Role → user name.")
    mitigated_at: datetime | None
    retained_since: datetime | None = Field(
        description="What is recorded from then on stays; null: as usual."
    )
    retained_until: datetime | None
    detect_seconds: Seconds | None = Field(description="From the onset to the alert.")
    acknowledge_seconds: Seconds | None = Field(description="From the alert on, as the others.")
    mitigate_seconds: Seconds | None
    resolve_seconds: Seconds | None
    timeline: list[IncidentEventRow] = Field(description="The oldest first.")
    follow_ups: list[FollowUpRow]


class IncidentReview(ApiAnswer):
    """The review of an incident, in Markdown."""

    alert: int
    text: str
    is_draft: bool = Field(description="true: made from what is recorded; nobody has edited it.")
    revision: int = Field(description="To be sent with a change.")


class ReviewedAlert(ApiAnswer):
    """An alert of the time that is reviewed."""

    id: int
    rule: str
    title: str
    severity: Severity
    labels: Labels
    fired_at: datetime
    resolved_at: datetime | None
    seconds: Seconds = Field(description="Open for so long, within the time.")
    worst: float | None
    threshold: float
    came_back: int
    acknowledged_after_seconds: Seconds | None
    acknowledged_by: str
    told: int = Field(description="Notifications sent.")
    under: int | None = Field(description="The alert that explains it.")
    actions: int
    effective: int


class ReviewSummary(ApiAnswer):
    """The time in figures, and in a sentence."""

    incidents: int = Field(description="Alerts that no other explains.")
    open_seconds: Seconds = Field(description="The time in which any incident was open, counted once.")
    alerts: int
    critical: int = Field(description="Critical incidents.")
    open: int = Field(description="Incidents that were open at the end.")
    explained: int
    flapped: int
    told: int = Field(description="Notifications sent.")
    failed: int = Field(description="Notifications that did not arrive.")
    acknowledged_seconds: Seconds | None = Field(description="The median until somebody acknowledged, s.")
    actions: int = Field(description="Of loops, while any incident was open, each counted once.")
    effective: int
    sentence: str


class AlertReview(ApiAnswer):
    since: datetime = Field(alias="from")
    until: datetime = Field(alias="to")
    summary: ReviewSummary
    alerts: list[ReviewedAlert]


class LabelMatcher(ApiAnswer):
    """A condition on a label."""

    label: str
    operator: Annotated[str, one_of(("=", "!=", "~"))] = Field(alias="is")
    value: str


class SilenceRow(ApiAnswer):
    id: int
    matchers: list[LabelMatcher] = Field(description="All of them hold for what is silenced.")
    reason: str
    owner: str
    expires_at: Instant


class SilenceList(ApiAnswer):
    silences: list[SilenceRow]


class SilencePreview(ApiAnswer):
    """What a silence would hide."""

    open: list[AlertRow]
    lately: int = Field(description="Alerts of the last 7 days that match.")
    of: int = Field(description="All alerts of the last 7 days.")


class SilenceEnd(ApiAnswer):
    ended: bool = Field(description="false: it was over already.")


class EscalationStep(ApiAnswer):
    after_minutes: float
    receivers: list[str]


class RuleRow(ApiAnswer):
    """A rule as people set it."""

    name: str
    revision: int = Field(description="Rises with each change.")
    condition: str
    matchers: list[LabelMatcher]
    group_by: list[str] = Field(description="Alerts that agree in these labels come in one message.")
    escalation: list[EscalationStep]
    enabled: bool
    title: str
    runbook: str
    severity: Severity
    threshold: float = Field(description="In the unit of the condition.")
    clear_threshold: float
    window_seconds: Seconds
    for_seconds: Seconds
    keep_seconds: Seconds
    acknowledge_minutes: float


class RuleList(ApiAnswer):
    rules: list[RuleRow]


class WouldHaveFired(ApiAnswer):
    labels: Labels
    at: Instant
    until: Instant | None


class RulePreview(ApiAnswer):
    """What a rule would have done in the last 24 h."""

    sentence: str
    stored_seconds: Seconds = Field(description="How much of the day is stored, s.")
    fired: list[WouldHaveFired]


class RuleDetail(RuleRow):
    preview: RulePreview


class MessageRow(ApiAnswer):
    """One message to one receiver."""

    key: str = Field(description="The same in each try.")
    state: Annotated[str, one_of(Message.State.values)]
    tries: int
    title: str
    created_at: Instant
    sent_at: Instant | None
    error: str


class ReceiverRow(ApiAnswer):
    """Who is notified; the fields of its channel are absent in the others."""

    name: str
    channel: Annotated[str, one_of(Receiver.Channel.values)]
    addresses: list[str] = Field([], description="Of email.")
    url: str = Field("", description="Of a webhook.")
    secret_environment: str = Field(
        "", description="The variable with a webhook's secret, an Alertmanager's token, or apprise's address."
    )
    answers_environment: str = Field("", description="The variable by which a chat proves its answers.")
    otherwise: str = Field("", description="Of a schedule: who is notified while nobody is on call.")
    tells_resolved: bool
    gets_reports: bool = Field(description="The weekly report.")
    enabled: bool
    digest: str = Field(description="Of it as it is: a change that names an older one is refused.")


class ChatReply(ApiAnswer):
    """What the chat shows, in the words of its service."""

    text: str = Field("", description="Of Slack, Mattermost, Rocket.Chat, Teams and Telegram.")
    content: str = Field("", description="Of Zulip.")
    response_type: str = ""
    type: str = ""
    method: str = ""
    chat_id: int | None = None


class ReceiverWithMessages(ReceiverRow):
    messages: list[MessageRow] = Field(description="The last 5.")


class DeadMansSwitchStatus(ApiAnswer):
    """Whether the address that is called while Weir works was called."""

    called_at: datetime | None = Field(description="null: never; none is set, or it was never possible.")
    error: str = Field(description="Why it was not called last; empty: it was, or none is set.")


class ReceiverList(ApiAnswer):
    receivers: list[ReceiverWithMessages]
    dead_mans_switch: DeadMansSwitchStatus


class ReceiverDeleted(ApiAnswer):
    deleted: str


Kind = Annotated[str, one_of(Objective.Kind.values)]
PaysFor = Annotated[str, one_of(Objective.PaysFor.values)]


class RunningMinute(ApiAnswer):
    """What was counted of a minute that is not over."""

    revision: int = Field(description="Of the objective.")
    minute: int = Field(description="Since 1970.")
    bad: float
    total: float
    carried: float = Field(0.0, description="What was bad, and is counted in the next seconds.")


class ObjectiveStatus(ApiAnswer):
    """How an objective stands, in seconds or events (`unit`)."""

    target: Share
    window_days: float
    kind: Kind
    subject: str
    unit: Annotated[str, one_of(("s", "events"))]
    pays_for: PaysFor
    bad: float
    total: float = Field(description="What was counted in the window; what is unknown is not.")
    left: float = Field(description="How much more of that may be bad; below 0 it is overspent. It steers.")
    left_share: float | None = Field(description="Of that budget; null: nothing was counted.")
    window_budget: float | None = Field(
        description="How much may be bad in the whole window, if the rest is like what was counted."
    )
    bad_per_second: float | None
    per_second: float | None
    burn: dict[str, float | None] = Field(description="By pair of windows: how many times as fast as it may.")
    running: RunningMinute | None = Field(None, description="null: it was written.")
    last_error: str | None = Field(description="Why it is not counted.")


class ObjectiveRow(ApiAnswer):
    """An objective as it is set, and how it stands."""

    name: str
    revision: int
    kind: Kind
    subject: str = Field(description="Empty: the plant, or each of its kind.")
    condition: str = Field(description="What holds in a good second.")
    lost: str = Field(description="What is bad, per second.")
    of: str = Field(description="Of how much, per second.")
    target: Share
    window_days: int
    pays_for: PaysFor
    changed_by: str | None
    changed_at: datetime
    status: ObjectiveStatus | None = Field(description="null: not counted yet.")


class ObjectiveList(ApiAnswer):
    objectives: list[ObjectiveRow]


class BurnHour(ApiAnswer):
    """What was counted in an hour."""

    at: Instant
    bad: float
    total: float


class BurnSubject(ApiAnswer):
    """What was bad at a subject."""

    subject: str
    bad: float


class BurnIncident(ApiAnswer):
    """What was bad while an alert lasted."""

    alert: int
    title: str
    since: Instant
    until: Instant | None
    bad: float


class ObjectiveDetail(ObjectiveRow):
    """One objective, and what burnt its budget."""

    hours: list[BurnHour]
    subjects: list[BurnSubject]
    incidents: list[BurnIncident]


class ObjectiveRemoved(ApiAnswer):
    removed: str
