"""`manage.py token NAME --role ROLE --days N`: a new API token, which is shown only once."""

from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandParser
from django.utils import timezone

from common.errors import BadInput
from common.parsing import parse_option_whole_number
from console.accounts import tokens
from console.accounts.access import Actor, find_user_role, get_user_queues
from console.management.document import JsonCommand

FIELDS = {"role": "--role", "days": "--days", "queues": "--queue", "actions": "--action", "owner": "--owner"}


class Command(JsonCommand):
    help = "Create an API token. Its secret is printed once and not stored."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--role", default="producer", help="producer, viewer, operator, or administrator")
        parser.add_argument("--days", type=parse_option_whole_number, default=90, help="days until the token expires")
        parser.add_argument("--owner", default="admin", help="user that the token acts for")
        parser.add_argument(
            "--queue", action="append", default=[], help=("limit the token to this queue; may be repeated")
        )
        parser.add_argument(
            "--action", action="append", default=[], help="limit the token to this action or family; may be repeated"
        )
        parser.add_argument("--json", action="store_true")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        username = options["owner"]
        owner = User.objects.filter(username=username).first()
        if owner is None:
            raise BadInput("--owner", f"{username} is not a user. Enter an existing username.")
        # A user with a shell here has an administrator's rights; the token never exceeds its owner.
        actor = Actor(name="manage.py", role=find_user_role(owner), user=owner, queues=get_user_queues(owner))
        scope = tokens.TokenScope(options["queue"], options["action"])
        name, role, days = options["name"], options["role"], options["days"]
        try:
            token, secret = tokens.make(actor, name, role, days, timezone.now(), scope)
        except BadInput as error:
            raise BadInput(FIELDS.get(error.field, error.field), error.message) from None
        expires_at = token.expires_at.isoformat()
        return {"name": token.name, "role": role, "expires_at": expires_at, "token": secret}

    def format_output(self, document: dict[str, Any]) -> str:
        return f"{document['token']}\n({document['role']}, until {document['expires_at']}; not shown again)"
