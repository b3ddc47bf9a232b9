"""Audit entries, tokens, sessions, submissions, and other rows of the console."""

from typing import Any

from django.conf import settings
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.utils import timezone
from django_otp.plugins.otp_totp.models import TOTPDevice

from console.storage import sealing
from console.storage.session_store import SessionStore


class AuditEntry(models.Model):
    """One change of state by a person or a token.

    The database itself rejects changes and deletions, and the entries are a chain (`console.audit.chain`, which alone
    writes them).
    """

    sequence = models.BigIntegerField(unique=True)  # 1, 2, 3 … without a gap
    previous = models.CharField(max_length=64)  # the digest of the previous entry
    digest = models.CharField(max_length=64)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    actor = models.CharField(max_length=200)  # a user name, or token:NAME
    action = models.CharField(max_length=80)  # override.set, loop.hold, node.drain …
    target = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    before = models.JSONField(null=True)
    # Any: readers of an entry know the document of its action.
    after: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    address = models.GenericIPAddressField(null=True)
    request_id = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        indexes = [models.Index(fields=["actor", "at"]), models.Index(fields=["action", "at"])]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target}"


class Mark(models.Model):
    """A mark on the timeline by a person or a deployment tool, at an instant or over a range.

    source, event: of the CloudEvent that it came as, "" for one that a person wrote; the two identify it, so a
    repetition is the same mark. parts: its subjects (`queue/alert`), none: the whole plant.
    """

    class Kind(models.TextChoices):
        DEPLOY = "deploy"
        CHANGE = "change"  # outside of Weir, but no deploy
        NOTE = "note"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.NOTE)
    title = models.CharField(max_length=80)
    text = models.TextField(blank=True)
    at = models.DateTimeField(db_index=True)
    until = models.DateTimeField(null=True, default=None)  # null: an instant
    author = models.CharField(max_length=200)  # a user name, or token:NAME
    created_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True, default=None)
    source = models.CharField(max_length=300, default="", blank=True)
    event = models.CharField(max_length=200, default="", blank=True)
    parts = models.JSONField(default=list)
    url = models.CharField(max_length=500, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source", "event"], condition=~models.Q(event=""), name="an_outside_change_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.title}"


class SharedLink(models.Model):
    """A link to the plant as it was at an instant, for people without a login.

    The link is this row's number, signed (`console.actions.shared_links`): it can't be derived from stored data.
    """

    at = models.DateTimeField()
    reason = models.TextField()
    author = models.CharField(max_length=200)  # a user name, or token:NAME
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    ended_at = models.DateTimeField(null=True, default=None)  # by a person, before its expiry

    def __str__(self) -> str:
        return f"link {self.pk} to {self.at:%Y-%m-%dT%H:%M:%SZ}"


class SavedFilter(models.Model):
    """A list filter that a person saved under a name: the query of its address."""

    class Page(models.TextChoices):
        LEDGER = "ledger"
        LOOPS = "loops"
        QUEUES = "queues"
        NODES = "nodes"
        WORKERS = "workers"
        DEAD_LETTERS = "dead-letters"
        AUDIT = "audit"
        TASK_HISTORY = "task-history"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    page = models.CharField(max_length=20, choices=Page.choices)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1_000)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "page", "name"], name="one_filter_a_name")]

    def __str__(self) -> str:
        return f"{self.page} {self.name}"


class UserPreferences(models.Model):
    """The display settings of a user, in all browsers. A value that is absent is the default."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_preferences")
    values = models.JSONField(default=dict)  # {"theme": "dark"}: see console.actions.preferences

    def __str__(self) -> str:
        return f"preferences of user {self.user_id}"


class ApiToken(models.Model):
    """A key for the API: only its SHA-256 is stored. It has a role and an expiry, and may be limited further.

    `console.accounts.access` determines what it may do: never more than its owner, nor than its parent token.
    """

    class Role(models.TextChoices):
        PRODUCER = "producer"  # may publish events, nothing else
        VIEWER = "viewer"
        OPERATOR = "operator"
        ADMINISTRATOR = "administrator"

    name = models.CharField(max_length=80, unique=True)
    digest = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=20, choices=Role.choices)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    queues = models.JSONField(default=list, blank=True)  # names it is limited to; empty: all
    actions = models.JSONField(default=list, blank=True)  # actions or families of them; empty: its role's
    # The parent token, with which it ends; null: created by a person.
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, related_name="children")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, default=None)
    used_at = models.DateTimeField(null=True, default=None)
    # Null: the plant's settings quota.events_per_second and quota.bytes_per_second.
    quota_events_per_second = models.PositiveIntegerField(null=True, default=None)
    quota_bytes_per_second = models.PositiveBigIntegerField(null=True, default=None)

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"


class Session(AbstractBaseSession):
    """A session of a browser. Its key is the SHA-256 of the cookie's (console.storage.session_store)."""

    session_key = models.CharField(max_length=64, primary_key=True)

    @classmethod
    def get_session_store_class(cls) -> type:
        return SessionStore


class UserSession(models.Model):
    """A login of a user: a row per session, so that it can be listed and ended.

    A session without its row has no user.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_sessions")
    digest = models.CharField(max_length=64, unique=True)  # of the cookie's key, which is not stored anywhere
    created_at = models.DateTimeField(default=timezone.now)
    seen_at = models.DateTimeField(default=timezone.now)
    address = models.GenericIPAddressField(null=True)
    agent = models.CharField(max_length=200, default="", blank=True)

    def __str__(self) -> str:
        return f"session of user {self.user_id} since {self.created_at:%Y-%m-%d %H:%M:%S}"


class Submission(models.Model):
    """A form that was sent with a key: a repetition gets the first answer, without another change."""

    actor = models.CharField(max_length=200)
    key = models.CharField(max_length=64)
    path = models.CharField(max_length=300)
    # SHA-256 of the request; empty in rows of versions that compared paths only.
    fingerprint = models.CharField(max_length=64, default="", blank=True)
    at = models.DateTimeField(default=timezone.now, db_index=True)
    # Null while it is being carried out, and permanently if its process died.
    status = models.PositiveSmallIntegerField(null=True, default=None)
    content_type = models.CharField(max_length=100, default="", blank=True)
    location = models.CharField(max_length=500, default="", blank=True)
    body = models.TextField(default="", blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["actor", "key"], name="a_submission_once")]

    def __str__(self) -> str:
        return f"{self.actor} {self.key} {self.status}"


class QueueLimit(models.Model):
    """The queues that a person's role is limited to. No row: all."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_queue_limit")
    queues = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.user_id}: {', '.join(self.queues)}"


class Identity(models.Model):
    """The OpenID Connect identity of this account. An account without one is local."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_identity")
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="an_identity_once")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"


class SecondFactor(TOTPDevice):  # type: ignore[misc] # django-otp has no types
    """A person's app for one-time passwords (TOTP): the library's device, with its key encrypted."""

    PURPOSE = "one-time password key"

    class Meta:
        proxy = True

    def keep_key(self, key: bytes) -> None:
        """Set the shared key."""
        self.key = sealing.seal(key, self.PURPOSE, str(self.user_id))

    @property
    def bin_key(self) -> bytes:
        return sealing.unseal(self.key, self.PURPOSE, str(self.user_id))


class Passkey(models.Model):
    """A passkey (WebAuthn credential) of a person; `console.accounts.passkeys` registers and verifies it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_passkeys")
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the credential's ID, in hex
    credential_id = models.CharField(max_length=1_400)  # base64url
    public_key = models.CharField(max_length=4_000)  # COSE key, base64url
    sign_count = models.PositiveBigIntegerField(default=0)  # 0: its authenticator doesn't count
    transports = models.JSONField(default=list)  # how browsers reach its authenticator: internal, usb, hybrid …
    host = models.CharField(max_length=253)  # the host name of Weir that it belongs to
    # Without it, the browser needs the credential's ID, so the passkey can't replace the username and password.
    is_discoverable = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    used_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"passkey {self.name} of user {self.user_id}"


class RecoveryCode(models.Model):
    """A recovery code that replaces a lost app or passkey once; only a keyed digest is stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="weir_recovery_codes")
    digest = models.CharField(max_length=64, unique=True)
    used_at = models.DateTimeField(null=True, default=None)

    def __str__(self) -> str:
        return f"recovery code of user {self.user_id}"


class AssistantProposal(models.Model):
    """One action that an assistant proposes, with its exact arguments and the snapshot it was made on.

    A person approves `hash` before `expires_at`, and then it is done as that person; otherwise it is void.
    `console.actions.proposals.assistant_proposals` has the possible actions, and the contents of the hash.
    """

    class State(models.TextChoices):
        PROPOSED = "proposed"
        APPROVED = "approved"
        REJECTED = "rejected"
        VOID = "void"  # nobody approved it in time

    act = models.CharField(max_length=20)  # override, hold, silence, plan
    arguments = models.JSONField()
    reason = models.TextField()
    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+")  # the token that proposes
    snapshot_seq = models.BigIntegerField()
    snapshot_at = models.FloatField()  # Unix time
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.PROPOSED, db_index=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True, default=None)
    note = models.TextField(default="", blank=True)  # the reason of the decision
    outcome = models.TextField(default="", blank=True)  # what was done, in a sentence

    def __str__(self) -> str:
        return f"proposal {self.pk} ({self.act}) {self.state}"


class Drill(models.Model):
    """A practice incident: waiting, running, or over (`console.drills`).

    `subjects`: {"queue", "node"} that it is about; `faults`: of each fault that was started and not ended, by its place
    in the scenario, what ends it. Times after the alert follow from the instants.
    """

    class Ending(models.TextChoices):
        RECOVERED = "recovered"
        TIME_OVER = "time over"
        STOPPED = "stopped"
        INTERRUPTED = "interrupted"  # the plant was stopped, or the drill's process was killed
        FAILED = "failed"  # its fault could not be started

    scenario = models.CharField(max_length=40)
    subjects: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    starter = models.CharField(max_length=200)  # user name of the person who started or scheduled it
    person = models.CharField(max_length=200, default="", blank=True)  # who responds; "": nobody yet
    is_surprise = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    window_end = models.DateTimeField(null=True, default=None)  # of a surprise drill
    due_at = models.DateTimeField(db_index=True)
    started_at = models.DateTimeField(null=True, default=None)  # of the first fault
    ends_at = models.DateTimeField(null=True, default=None)  # at the latest
    stop_requested_at = models.DateTimeField(null=True, default=None)
    ended_at = models.DateTimeField(null=True, default=None, db_index=True)
    ending = models.CharField(max_length=20, choices=Ending.choices, default="", blank=True)
    note = models.TextField(default="", blank=True)
    faults: "models.JSONField[Any, Any]" = models.JSONField(default=dict)
    alerted_at = models.DateTimeField(null=True, default=None)
    noticed_at = models.DateTimeField(null=True, default=None)
    action_seconds = models.FloatField(null=True, default=None)  # after the alert
    recovered_at = models.DateTimeField(null=True, default=None)
    points: "models.JSONField[Any, Any]" = models.JSONField(default=dict)  # by part
    score = models.PositiveSmallIntegerField(null=True, default=None)
    # What was observed (`console.drills.checks`), by its place there.
    checks: "models.JSONField[Any, Any]" = models.JSONField(default=dict, db_default={})

    def __str__(self) -> str:
        return f"drill {self.pk} {self.scenario}"

    def save_progress(self) -> None:
        """Save the results of the drill's runner.

        A step of the runner can take seconds. In the meantime, a request to stop the drill, or the person who opened
        the incident, can be saved in the database but not in this object.
        """
        unknown = {name for name in ("person", "noticed_at") if not getattr(self, name)}
        names = {field.name for field in self._meta.concrete_fields if not field.primary_key}
        self.save(update_fields=names - unknown - {"stop_requested_at"})
