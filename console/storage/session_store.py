"""Sessions in the database, without their keys: a row is named by the SHA-256 of its cookie.

A reader of the database therefore can't use anybody's session. A session's contents are signed with its name: a row
can't be forged, nor can one session's contents be moved to another. A session of a logged-in user depends on its row in
`UserSession`: once that is deleted, or idle for longer than the setting permits, the session has no user, here and on
websockets.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.utils import timezone

from workers.steering import plant_settings


def digest_of_key(session_key: str) -> str:
    """Return the SHA-256 in hex. Keys are 160 random bits, so a slow hash would add nothing."""
    return hashlib.sha256(session_key.encode()).hexdigest()


def compute_idle_cutoff(now: datetime) -> datetime:
    """Return the instant such that sessions last used before it have ended."""
    return now - timedelta(minutes=plant_settings.get_setting_value("session.idle_minutes"))


class SessionStore(DatabaseStore):
    """Django's own store, except for the name of the row and the two checks above."""

    row: Any = None  # of UserSession, loaded once, if a user is logged in

    @classmethod
    def get_model_class(cls) -> Any:
        return apps.get_model("console", "Session")

    @property
    def digest(self) -> str:
        """Return the name of its row; "" while it has no key."""
        return digest_of_key(self.session_key) if self.session_key else ""

    @property
    def key_salt(self) -> str:
        return f"console.session_store.{self.digest}"

    def load(self) -> dict[str, Any]:
        kept = self.model.objects.filter(session_key=self.digest, expire_date__gt=timezone.now()).first()
        data = self.decode(kept.session_data) if kept else {}
        if kept and (SESSION_KEY not in data or self._is_alive(data)):
            return data
        self._session_key = None
        return {}

    def _is_alive(self, data: dict[str, Any]) -> bool:
        rows = apps.get_model("console", "UserSession").objects
        alive = rows.filter(digest=self.digest, seen_at__gt=compute_idle_cutoff(timezone.now()))
        self.row = alive.filter(user_id=data[SESSION_KEY]).first()
        return self.row is not None

    def exists(self, session_key: str) -> bool:
        return self.model.objects.filter(session_key=digest_of_key(session_key)).exists()

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        made = super().create_model_instance(data)
        made.session_key = self.digest
        return made

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            self.model.objects.filter(session_key=digest_of_key(key)).delete()

    async def aload(self) -> dict[str, Any]:
        return await sync_to_async(self.load)()

    async def aexists(self, session_key: str) -> bool:
        return await sync_to_async(self.exists)(session_key)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Any:
        return await sync_to_async(self.create_model_instance)(data)

    async def adelete(self, session_key: str | None = None) -> None:
        await sync_to_async(self.delete)(session_key)
