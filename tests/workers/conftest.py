"""Fixtures of the workers' tests."""

import pytest
from celery import Celery, current_app

from tests.workers.placement.plan_plant import Plant


@pytest.fixture
def broker(control_server):
    """The current application is like the console's, on the test's control server; gives the URL."""
    before = current_app._get_current_object()
    application = Celery("weir")
    application.config_from_object("django.conf:settings", namespace="CELERY")
    application.set_current()
    yield control_server.url
    application.close()
    before.set_current()


@pytest.fixture
def plant(control, nodes, db):
    """Three nodes and three queues in the database, on real servers, with agents that beat when told to."""
    made = Plant(control, nodes)
    yield made
    made.close()


@pytest.fixture
def user(django_user_model):
    return django_user_model.objects.create(username="desk-2")
