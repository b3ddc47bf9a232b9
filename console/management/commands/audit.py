"""`manage.py audit verify`: whether the audit log is intact. `manage.py audit accept`: accept its findings.

Accepting records that a person has investigated the findings, and the reason; the check ignores them from then on.
"""

import json
import os
import pwd
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils import timezone

from console.accounts.access import Actor
from console.audit import audit_log, witness
from console.audit.check import ACCEPT, Checker, Verdict
from console.management.one_line import OneLineCommand
from controllers.framework.reason import format_count

MAX_ACCEPTED = 1_000


class Command(OneLineCommand):
    help = "verify: check every entry of the audit log. accept: record that the findings were investigated."
    requires_system_checks = []  # as for `JsonCommand`

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=("verify", "accept"))
        parser.add_argument("--reason", default="", help="for accept: what happened (recorded in the audit log)")
        parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")

    def handle(self, *args: object, **options: Any) -> None:
        verdict = Checker(settings.WEIR_DATA).step()
        if options["what"] == "accept":
            verdict = self._accept(verdict, options["reason"].strip())
        plain = options["json"] or not sys.stdout.isatty()
        self.stdout.write(json.dumps(verdict.document()) if plain else format_verdict(verdict))
        if not verdict.sound:
            sys.exit(1)

    def _accept(self, verdict: Verdict, reason: str) -> Verdict:
        if not reason:
            self.stderr.write("--reason is required: describe what happened. It is recorded in the audit log.")
            sys.exit(2)
        if len(verdict.findings) > MAX_ACCEPTED:
            self.stderr.write(
                f"findings: at most {MAX_ACCEPTED} can be accepted, not {len(verdict.findings)}. Restore a backup."
            )
            sys.exit(1)
        if any(finding.kind in ("cut", "forged") for finding in verdict.findings):
            witness.put_aside(settings.WEIR_DATA, timezone.now())
            witness.forget()
        if verdict.findings:
            who = Actor(name=f"manage.py:{_get_user_name()}", role=None)
            about = {
                "findings": [finding.key for finding in verdict.findings],
                "texts": [finding.text for finding in verdict.findings[:20]],
            }
            audit_log.record(who, ACCEPT, "audit", reason=reason, after=about)
        return Checker(settings.WEIR_DATA).step()


def _get_user_name() -> str:
    """Return the user's name, or the number: in a container with any user number it may have no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def format_verdict(verdict: Verdict) -> str:
    lines = [finding.text for finding in verdict.findings]
    state = (
        "The audit log is intact"
        if verdict.sound
        else f"The audit log is not intact: {format_count(len(lines), 'finding')}"
    )
    about = f"{state}: {verdict.entries} entries, last {verdict.last.sequence} {verdict.last.digest[:16]}…"
    return "\n".join([f"{about}, {verdict.heads} copies of chain heads, {verdict.seconds:.1f} s.", *lines])
