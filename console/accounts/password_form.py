"""The form for changing one's own password."""

from django.contrib.auth.forms import PasswordChangeForm
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from console.accounts.access import user_of
from console.accounts.login import is_own_password


class OwnPasswordForm(PasswordChangeForm):
    """Django's form, but the old password is checked as at a login: counted, locked out, and audited."""

    def __init__(self, request: HttpRequest, data: object = None) -> None:
        super().__init__(user_of(request), data)
        self.request = request

    def clean_old_password(self) -> str:
        """Return the old password. Raises `ValidationError` for a wrong one, and during a lockout for any."""
        typed: str = self.cleaned_data["old_password"]
        if not is_own_password(self.request, typed):
            raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return typed
