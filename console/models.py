"""Who did what, and with which token."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class AuditEntry(models.Model):
    """One state change by a person or a token: never edited, never deleted by the console."""

    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.CharField(max_length=200)  # a user name, or token:NAME
    action = models.CharField(max_length=80)  # override.set, loop.hold, node.drain …
    target = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    address = models.GenericIPAddressField(null=True)

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
