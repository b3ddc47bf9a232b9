"""Watches the audit log while alerts are evaluated.

It checks the log every CHECK_SECONDS, keeps its head elsewhere, and writes its findings to the control server, where
the alert rules read them.
"""

import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

import redis
from django.db import DatabaseError, close_old_connections, connections

from common.stored_document import convert, encode_document
from console.audit import witness
from console.audit.check import Checker, Verdict
from console.connections.control_server import control
from queues import keys
from workers.documents.alerts import AuditVerdict

logger = logging.getLogger(__name__)
# With the check of the alerter (2 s) an altered row raises an alert within a minute.
CHECK_SECONDS = 30.0
# Time limit for recomputing digests in a check; the rest of a long audit log follows in the next ones.
BUDGET_SECONDS = 5.0
MAX_SAID = 5


class AuditWatch:
    """`step` is one check; `run` checks until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checker = Checker(folder, BUDGET_SECONDS)

    def step(self, now: datetime) -> Verdict:
        verdict = self._checker.step()
        if verdict.sound and verdict.last.sequence:
            self._keep_head(verdict)
        said = verdict.document()
        said["findings"] = said["findings"][:MAX_SAID]
        try:
            document = convert(AuditVerdict, {"at": now.timestamp(), **said})
            control().set(keys.AUDIT_VERDICT, encode_document(document))
        except redis.RedisError as error:
            logger.warning("The findings of the audit check could not be published: %s", error)
        return verdict

    def run(self, stop: threading.Event) -> None:
        """Check repeatedly, the first time at once. An error is logged once, and the check is tried again."""
        in_trouble, wait_seconds = False, 0.0
        while not stop.wait(wait_seconds):
            wait_seconds = CHECK_SECONDS
            try:
                self.step(datetime.now(UTC))
                in_trouble = False
            except Exception as error:
                if not in_trouble:
                    logger.warning("The audit log can't be checked: %r", error)
                in_trouble = True
                if isinstance(error, DatabaseError):
                    close_old_connections()
        connections.close_all()

    def _keep_head(self, verdict: Verdict) -> None:
        """Keep the head of an audit log that was found intact."""
        last = witness.read_disk_heads(self._folder, 1)
        if not last or last[0].sequence < verdict.last.sequence:
            witness.keep(self._folder, verdict.last)
        witness.send_head(verdict.last.sequence, verdict.last.digest)
