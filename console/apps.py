"""Loading the console also makes its Celery application the current one."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        # The shared tasks of `workers` bind to this application; importing it is what registers it.
        import console.celery  # noqa: F401
