"""Loading the console makes its Celery application the current one, and has every row checked."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        # The shared tasks of `workers` bind to this application; importing it is what registers it.
        import console.celery

        # Each login is noted from the first on, whatever was imported before it.
        import console.sessions  # noqa: F401
        from console import row_bounds

        row_bounds.connect()
