"""The console's app: makes its Celery application the current one, and validates every row."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        # Each login is recorded from the first on, independently of earlier imports.
        import console.accounts.sessions

        # The shared tasks of `workers` bind to this application; importing it registers it.
        import console.celery  # noqa: F401
        from console.input import storable

        storable.connect()
