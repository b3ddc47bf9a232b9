"""Attached plants that an administrator has added."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class RegisteredPlant(models.Model):
    """How a plant is reached.

    A token is never stored: `secret_environment` names the variable that contains it.

    kind, and options (its further settings): as `workers.plants.foreign.adapters` finds and checks them.
    """

    name = models.CharField(max_length=40, unique=True)
    kind = models.CharField(max_length=20)
    url = models.CharField(max_length=500, blank=True)
    options = models.JSONField(default=dict)
    secret_environment = models.CharField(max_length=80, default="", blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> tuple[object, ...]:
        """Return which plant it is: with another address or other parts it is another plant."""
        return self.kind, self.url, self.options


class PlantOrder(models.Model):
    """The tasks of an operator that Weir last set, at `at`, by a loop or a person: one row each."""

    plant = models.ForeignKey(RegisteredPlant, on_delete=models.CASCADE, related_name="orders")
    operator = models.CharField(max_length=200)
    tasks = models.PositiveIntegerField()
    at = models.DateTimeField()
    by = models.CharField(max_length=200)
    by_loop = models.BooleanField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["plant", "operator"], name="one_order_an_operator")]

    def __str__(self) -> str:
        return f"{self.plant.name} {self.operator}: {self.tasks}"
