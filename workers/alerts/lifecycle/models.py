"""Stored records of alerts: rules and receivers as people define them, alerts, silences, and messages."""

import math
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


def compute_seconds_between(since: datetime | None, until: datetime | None) -> float | None:
    """Return the seconds between two times; None also if the clock was set back: the length is not recorded."""
    if since is None or until is None or until < since:
        return None
    return round((until - since).total_seconds(), 1)


class Receiver(models.Model):
    """A receiver: who is notified, and how.

    `settings`: email {"addresses": […]}, webhook and alertmanager {"url", "secret_environment"}, apprise
    {"secret_environment"}, schedule {"secret_environment", "otherwise"} (notifies the person on call by a calendar),
    browser {}. `severities`, `team`, `route_minutes`: the alerts that it takes by the default route, and after how long
    (`workers.alerts.lifecycle.routing`).
    """

    class Channel(models.TextChoices):
        BROWSER = "browser"
        EMAIL = "email"
        WEBHOOK = "webhook"
        ALERTMANAGER = "alertmanager"
        APPRISE = "apprise"  # chat and pagers
        SCHEDULE = "schedule"

    name = models.CharField(max_length=60, unique=True)
    channel = models.CharField(max_length=20, choices=Channel.choices)
    settings = models.JSONField(default=dict)
    tells_resolved = models.BooleanField(default=True)
    gets_reports = models.BooleanField(default=False)  # the weekly one (`workers.reports`)
    severities = models.JSONField(default=list)
    team = models.CharField(max_length=40, default="", db_default="", blank=True)
    route_minutes = models.FloatField(default=0.0, db_default=0.0)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class OnCallFeed(models.Model):
    """The last reading of the calendar of a receiver of channel `schedule`.

    `shifts`: as in `workers.alerts.delivery.schedule`; `broken`: a sentence for each event that can't be
    read; `error`: of the last try, "" if it was read.
    """

    receiver = models.OneToOneField(Receiver, on_delete=models.CASCADE, primary_key=True, related_name="feed")
    shifts: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    broken: "models.JSONField[Any, Any]" = models.JSONField(default=list, db_default=[])
    read_at = models.DateTimeField(null=True, default=None)
    tried_at = models.DateTimeField(null=True, default=None)
    error = models.TextField(default="", blank=True)

    def __str__(self) -> str:
        return f"feed of {self.receiver_id}"


class AlertRule(models.Model):
    """A rule: when its alerts fire, their severity, and the receivers that they notify in order.

    `matchers` narrow the condition's subjects: [{"label", "is", "value"}] (`workers.alerts.rules.rules`).
    `escalation`: [{"after_minutes", "receivers": [name]}], the delays ascending; null: the default route.
    """

    class Severity(models.TextChoices):
        CRITICAL = "critical"
        WARNING = "warning"
        NOTICE = "notice"

    name = models.CharField(max_length=60, unique=True)
    title = models.CharField(max_length=120)  # may name labels: "Queue {queue} falls behind"
    condition = models.CharField(max_length=60)  # a name in workers.alerts.conditions.catalog
    matchers = models.JSONField(default=list)
    threshold = models.FloatField()
    clear_threshold = models.FloatField()  # hysteresis: between the two nothing changes
    window_seconds = models.FloatField(default=600.0)  # the window of a condition that counts
    for_seconds = models.FloatField(default=0.0)
    keep_seconds = models.FloatField(default=30.0)  # it must be clear for this long
    severity = models.CharField(max_length=10, choices=Severity.choices, default=Severity.WARNING)
    runbook = models.CharField(max_length=500, default="", blank=True)
    group_by = models.JSONField(default=list)  # labels; alerts that agree in them share a message
    escalation = models.JSONField(default=None, null=True)
    team = models.CharField(max_length=40, default="", db_default="", blank=True)  # that the default route notifies
    acknowledge_minutes = models.FloatField(default=60.0)  # then it fires again, if it is still true
    enabled = models.BooleanField(default=True)
    revision = models.PositiveIntegerField(default=1)  # a form that was filled from an older one is refused
    changed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name


class Silence(models.Model):
    """A silence: matching alerts notify nobody until it ends; it always ends."""

    matchers = models.JSONField()
    reason = models.TextField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True, default=None)
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    # Whether it also covers alerts about Weir's own integrity: an administrator set it.
    covers_integrity = models.BooleanField(default=False, db_default=False)

    def __str__(self) -> str:
        return f"silence {self.pk} until {self.expires_at:%H:%M:%S}"


ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth"}


class Alert(models.Model):
    """One episode of a rule at a subject, from the first sign to the end. While pending it is not shown.

    `labels` say what it is about: {"rule", "severity", and by condition "queue", "node", "loop", …}; `touches` what it
    may be explained by: {"nodes": […]}.
    """

    class State(models.TextChoices):
        PENDING = "pending"
        FIRING = "firing"
        ACKNOWLEDGED = "acknowledged"
        RESOLVED = "resolved"

    rule = models.ForeignKey(AlertRule, on_delete=models.SET_NULL, null=True, related_name="alerts")
    rule_name = models.CharField(max_length=60, db_index=True)
    condition = models.CharField(max_length=60)
    fingerprint = models.CharField(max_length=64)  # of rule and subject
    labels = models.JSONField()
    touches = models.JSONField(default=dict)
    severity = models.CharField(max_length=10)
    title = models.CharField(max_length=200)
    sentence = models.TextField(default="")
    impact = models.TextField(default="")
    value = models.FloatField(null=True)
    worst = models.FloatField(null=True)
    # The values when it was at its worst; "" while they are unknown. An older Weir that still runs while this
    # one migrates writes none.
    worst_sentence = models.TextField(default="", db_default="", blank=True)
    worst_impact = models.TextField(default="", db_default="", blank=True)
    worst_cause = models.TextField(default="", db_default="", blank=True)
    threshold = models.FloatField()
    state = models.CharField(max_length=12, choices=State.choices, default=State.PENDING)
    began_at = models.DateTimeField(db_index=True)
    fired_at = models.DateTimeField(null=True, default=None, db_index=True)
    cleared_since = models.DateTimeField(null=True, default=None)
    resolved_at = models.DateTimeField(null=True, default=None, db_index=True)
    came_back = models.PositiveIntegerField(default=0)
    returned_at = models.DateTimeField(null=True, default=None)  # when it came back the last time
    acknowledged_at = models.DateTimeField(null=True, default=None)
    acknowledged_until = models.DateTimeField(null=True, default=None)
    acknowledged_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    snoozed_until = models.DateTimeField(null=True, default=None)
    snoozed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    silence = models.ForeignKey(Silence, on_delete=models.SET_NULL, null=True, related_name="alerts")
    # The occurrence of a planned window that silences it.
    expected = models.ForeignKey("workers.ExpectedAlert", on_delete=models.SET_NULL, null=True, related_name="+")
    under = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="explained")
    # A person's pause or drain that explains it; "" if there is none.
    explanation = models.TextField(default="", blank=True)
    # Escalation: steps count from told_from; a round starts when it fires, and again after a timeout.
    round = models.PositiveIntegerField(default=0)
    next_step = models.PositiveIntegerField(default=0)
    told_from = models.DateTimeField(null=True, default=None)
    # The last step that notified browsers: a browser that connects later shows it, too, once.
    announcement = models.CharField(max_length=20, default="", blank=True)

    # The state when the evaluator read it; not stored.
    loaded: list[Any] = []

    class Meta:
        indexes = [models.Index(fields=["state", "-fired_at"])]
        constraints = [
            models.UniqueConstraint(
                fields=["fingerprint"], condition=models.Q(resolved_at__isnull=True), name="one_open_alert_of_a_subject"
            )
        ]

    def __str__(self) -> str:
        return f"{self.title} ({self.state})"

    @property
    def shown_severity(self) -> str:
        """Return the severity that a person set for its incident, else the rule's.

        A query, unless `incident` is selected.
        """
        incident: Incident | None = getattr(self, "incident", None)
        return (incident.severity if incident else "") or self.severity

    @property
    def since(self) -> datetime | None:
        """Return when the alert last fired."""
        return self.returned_at or self.fired_at

    @property
    def recurrence(self) -> str:
        """Return how often the alert fired and in which time, such as third time in 20 min; "" if it fired once."""
        if self.returned_at is None or self.fired_at is None:
            return ""
        count = self.came_back + 1
        minutes = max(1, math.ceil((self.returned_at - self.fired_at).total_seconds() / 60))
        time = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
        return f"{ORDINALS.get(count, f'{count} times')}{' time' if count in ORDINALS else ''} in {time}"

    @property
    def length_seconds(self) -> float | None:
        """Return the seconds that the last failure lasted, or None. It is None if the clock was set back meanwhile."""
        return compute_seconds_between(self.since, self.resolved_at)


class AlertEvent(models.Model):
    """An event in the history of an alert, or a note that a person wrote about it."""

    class Kind(models.TextChoices):
        FIRED = "fired"
        CAME_BACK = "came back"
        ACKNOWLEDGED = "acknowledged"
        FIRED_AGAIN = "fired again"
        SNOOZED = "snoozed"
        SNOOZE_ENDED = "snooze ended"
        SILENCED = "silenced"
        SILENCE_ENDED = "silence ended"
        EXPLAINED = "explained"
        UNEXPLAINED = "unexplained"
        NOTIFIED = "told", "Told"  # as stored since the first release
        ESCALATED = "escalated"
        RESOLVED = "resolved"
        NOTE = "note"
        GRADED = "graded"  # its severity, set by a person
        ROLE = "role"
        MITIGATED = "mitigated"
        FOLLOW_UP = "follow-up"
        REVIEWED = "reviewed"

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    kind = models.CharField(max_length=14, choices=Kind.choices)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    text = models.TextField(default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["alert", "at"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.at:%H:%M:%S}"


class Incident(models.Model):
    """The stored data of an alert that no other explains, in addition to the alert.

    It has what came before the alert, and what people record. Without a row, nothing is recorded yet.
    `changes`: as `console.incidents.changes` found them, the likeliest cause first; `roles`: {role: who};
    `review`: in Markdown, "" while nobody has edited the draft.
    """

    alert = models.OneToOneField(Alert, on_delete=models.CASCADE, primary_key=True, related_name="incident")
    severity = models.CharField(max_length=10, choices=AlertRule.Severity.choices, default="", blank=True)
    roles = models.JSONField(default=dict)
    mitigated_at = models.DateTimeField(null=True, default=None)
    changes: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    changes_at = models.DateTimeField(null=True, default=None)  # of the last search
    review = models.TextField(default="", blank=True)
    review_revision = models.PositiveIntegerField(default=0)
    reviewed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    reviewed_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"incident {self.alert_id}"


class FollowUp(models.Model):
    """Something to be done after an incident, so that it does not happen again."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="follow_ups")
    text = models.CharField(max_length=500)
    owner = models.CharField(max_length=150, default="", blank=True)  # a user name; "": nobody yet
    due_on = models.DateField(null=True, default=None)
    created_at = models.DateTimeField(default=timezone.now)
    done_at = models.DateTimeField(null=True, default=None)
    done_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")

    def __str__(self) -> str:
        return f"{self.text[:40]} ({'done' if self.done_at else 'open'})"


class Message(models.Model):
    """One message to one receiver, its content frozen before it is first sent: a repetition is the same."""

    class State(models.TextChoices):
        WAITING = "waiting"
        SENT = "sent"
        FAILED = "failed"  # given up

    # Errors of messages that were given up through no fault of their receiver.
    SWITCHED_OFF = "Its receiver was switched off before it was sent."
    FIRES_AGAIN = "It brought the end of an alert that fires again."
    NO_FAULT = (SWITCHED_OFF, FIRES_AGAIN)

    key = models.CharField(max_length=32, unique=True)  # the receiver detects a repetition by it
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="messages")
    content = models.JSONField()  # {"kind", "title", "sentence", "alerts": […]}
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING, db_index=True)
    tries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now, db_index=True)
    due_at = models.DateTimeField(default=timezone.now)  # when a message that was given up was given up
    sent_at = models.DateTimeField(null=True, default=None)
    error = models.TextField(default="", blank=True)
    # If its receiver is several: marks of those that have it, while others have not.
    reached = models.JSONField(null=True, default=None)

    def __str__(self) -> str:
        return f"{self.key[:8]} {self.state}"


class Delivery(models.Model):
    """One notification that a receiver is owed of an alert: once per step of each round, and of its end."""

    class Kind(models.TextChoices):
        FIRING = "firing"
        RESOLVED = "resolved"

    class State(models.TextChoices):
        WAITING = "waiting"  # for the others of its group
        BUNDLED = "bundled"  # in a message
        DROPPED = "dropped"  # over before anything was sent

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="deliveries")
    receiver = models.ForeignKey(Receiver, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    round = models.PositiveIntegerField()
    step = models.PositiveIntegerField()
    group = models.CharField(max_length=200)
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING, db_index=True)
    created_at = models.DateTimeField(default=timezone.now)
    message = models.ForeignKey(Message, on_delete=models.SET_NULL, null=True, related_name="deliveries")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["alert", "receiver", "kind", "round", "step"], name="told_once_a_step")
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.alert_id} to {self.receiver_id}"


class AlertWatch(models.Model):
    """The alerter's own row.

    It says when it last checked, the greatest fencing number that wrote, when it last processed what is to be sent, and
    when the dead man's switch was last called, or why it was not ("": it was).
    """

    fence = models.PositiveBigIntegerField(default=0)
    looked_at = models.DateTimeField(null=True, default=None)
    delivered_at = models.DateTimeField(null=True, default=None)
    alive_at = models.DateTimeField(null=True, default=None)
    alive_error = models.TextField(default="", blank=True)

    def __str__(self) -> str:
        return f"last check {self.looked_at}"


class ReportedAlert(models.Model):
    """An alert of another monitoring system, as its Alertmanager reported it.

    It is additional evidence that notifies nobody. `source`: whose token delivered it. `ended_at`: None while it is
    firing there.
    """

    source = models.CharField(max_length=80)
    fingerprint = models.CharField(max_length=64)  # of its labels, by Alertmanager
    name = models.CharField(max_length=120)
    severity = models.CharField(max_length=40, default="", blank=True)
    labels = models.JSONField(default=dict)
    summary = models.CharField(max_length=300, default="", blank=True)
    description = models.TextField(default="", blank=True)
    link = models.CharField(max_length=500, default="", blank=True)
    began_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True, default=None)
    reported_at = models.DateTimeField(db_index=True)  # last

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["source", "fingerprint", "began_at"], name="weir_reported_alert_once")
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.source}"
