"""The API, version 1: `/api/v1/…`, its OpenAPI document at `/api/schema`."""

from typing import Any

from ninja import NinjaAPI

from console.api import (
    account,
    alerts,
    audit,
    control,
    dead_letters,
    events,
    history,
    lab,
    ledger,
    pipelines,
    plans,
    plant,
    tasks,
    timeline,
)
from console.api.authentication import Caller
from console.api.refusals import add_refusals

api = NinjaAPI(
    title="Weir",
    version="1",
    description="Watch and steer an event-processing plant.",
    openapi_url="/schema",
    docs_url=None,  # its page would load scripts from elsewhere
    auth=Caller(),
    urls_namespace="api",
)
add_refusals(api)
for part in (
    plant,
    history,
    timeline,
    control,
    ledger,
    audit,
    account,
    plans,
    alerts,
    events,
    tasks,
    pipelines,
    dead_letters,
    lab,
):
    api.add_router("/v1", part.router)


def urls() -> Any:
    """The API's addresses. Endpoints ask for themselves who calls, and answer 401, not a login page."""
    patterns, application, namespace = api.urls
    for pattern in patterns:
        pattern.callback.login_required = False
    return patterns, application, namespace
