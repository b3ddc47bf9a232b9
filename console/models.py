"""Who did what, with which token, in which session, and what was sent already."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEntry(models.Model):
    """One state change by a person or a token: the database itself refuses to edit or delete it."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.CharField(max_length=200)  # a user name, or token:NAME
    action = models.CharField(max_length=80)  # override.set, loop.hold, node.drain …
    target = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["actor", "at"]), models.Index(fields=["action", "at"])]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target}"


class Mark(models.Model):
    """What a person or a deployment tool wrote on the timeline, at a moment or over a range."""

    class Kind(models.TextChoices):
        DEPLOY = "deploy"
        NOTE = "note"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.NOTE)
    title = models.CharField(max_length=80)
    text = models.TextField(blank=True)
    at = models.DateTimeField(db_index=True)
    until = models.DateTimeField(null=True, default=None)  # null: a moment
    author = models.CharField(max_length=200)  # a user name, or token:NAME
    created_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"{self.kind} {self.title}"


class ApiToken(models.Model):
    """A key for the API: only its SHA-256 is kept, it has a role and an expiry."""

    class Role(models.TextChoices):
        PRODUCER = "producer"  # may publish events, nothing else
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMINISTRATOR = "administrator"

    name = models.CharField(max_length=80, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=20, choices=Role.choices)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, default=None)
    used_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"


class UserSession(models.Model):
    """Where somebody is logged in: a row per session that Django keeps, so that it can be seen and ended."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_sessions")
    session_key = models.CharField(max_length=40, unique=True)  # never shown: whoever has it is logged in
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    address = models.GenericIPAddressField(null=True)
    agent = models.CharField(max_length=200, default="", blank=True)

    def __str__(self) -> str:
        return f"{self.user_id} since {self.created_at:%Y-%m-%d %H:%M:%S}"


class Submission(models.Model):
    """A form that was sent under a key: sent again, it gets the first answer, and nothing happens twice."""

    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=64)
    path = models.CharField(max_length=300)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    # Null while it is being carried out, and for ever when its process died meanwhile.
    status = models.PositiveSmallIntegerField(null=True, default=None)
    content_type = models.CharField(max_length=100, default="", blank=True)
    location = models.CharField(max_length=500, default="", blank=True)
    body = models.TextField(default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["actor", "key"], name="a_submission_once")]

    def __str__(self) -> str:
        return f"{self.actor} {self.key} {self.status}"
