"""manage.py token NAME --role ROLE --days N: a new API token, shown this once."""

import re
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.utils import timezone

from console import audit
from console.access import Actor, create_token, least_role, role_of
from console.management.document import JsonCommand
from console.models import ApiToken
from queues.errors import BadInput

NAME = re.compile(r"[\w.-]{1,80}\Z")
MAXIMUM_DAYS = 366


class Command(JsonCommand):
    help = "Make an API token. Its secret is printed once and kept nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--role", default="producer", help="producer, viewer, operator or administrator")
        parser.add_argument("--days", type=int, default=90, help=f"until it expires (1 to {MAXIMUM_DAYS})")
        parser.add_argument("--owner", default="admin", help="the user it acts for")
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        owner = _owner(options["owner"])
        name, role, days = options["name"], options["role"], options["days"]
        _check(name, role, days, owner)
        expires_at = timezone.now() + timedelta(days=days)
        token, secret = create_token(owner, name, role, expires_at)
        after = {"role": role, "expires_at": expires_at.isoformat()}
        actor = Actor(name="manage.py", role="administrator")
        audit.record(actor, "token.create", name, reason=f"for {owner.get_username()}", after=after)
        return {"name": token.name, "role": role, "expires_at": expires_at.isoformat(), "token": secret}

    def human(self, document: dict[str, Any]) -> str:
        return f"{document['token']}\n({document['role']}, until {document['expires_at']}; not shown again)"


def _owner(username: str) -> User:
    owner = User.objects.filter(username=username).first()
    if owner is None:
        raise BadInput("--owner", f"{username} is not a user; name one that can log in.")
    return owner


def _check(name: str, role: str, days: int, owner: User) -> None:
    if not NAME.match(name):
        raise BadInput("name", "takes letters, digits, dot, - and _ (80 at most).")
    if ApiToken.objects.filter(name=name).exists():
        raise BadInput("name", f"{name} is taken; choose another, or revoke that token first.")
    if role not in ApiToken.Role.values:
        raise BadInput("--role", f"takes {', '.join(ApiToken.Role.values)}, not {role!r}.")
    if least_role(role, role_of(owner)) != role:
        raise BadInput("--role", f"{role} is more than its owner {owner.get_username()} may do.")
    if not 1 <= days <= MAXIMUM_DAYS:
        raise BadInput("--days", f"takes a whole number from 1 to {MAXIMUM_DAYS}, not {days}.")
