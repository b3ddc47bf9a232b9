"""Loading the console makes its Celery application the current one, and has every row checked."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        # Each login is noted from the first on, whatever was imported before it.
        import console.accounts.sessions

        # The shared tasks of `workers` bind to this application; importing it is what registers it.
        import console.celery  # noqa: F401
        from console.input import row_bounds

        row_bounds.connect()
