"""The API, version 1: `/api/v1/…`, its OpenAPI document at `/api/schema`."""

from http import HTTPStatus
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from console.api.ingestion import events
from console.api.request.authentication import Caller
from console.api.request.refusals import add_refusals
from console.api.routes import (
    account,
    alerts,
    audit,
    control,
    dead_letters,
    history,
    lab,
    ladders,
    ledger,
    pipelines,
    plans,
    plant,
    plant_control,
    plants,
    tasks,
    timeline,
)
from console.input.boundary import Documents
from console.web import problem

PROBLEMS = (400, 401, 403, 404, 405, 409, 413, 415, 422, 429, 500, 503)


class Documented(NinjaAPI):
    """Its document also holds the control API of the plants, which has addresses of its own."""

    def get_openapi_schema(self, **asked: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**asked)
        other = plant_control.api.get_openapi_schema(path_prefix="/control/")
        schema["paths"].update(other["paths"])
        for kind, named in other["components"].items():
            schema["components"].setdefault(kind, {}).update(named)
        schema["components"]["schemas"]["Problem"] = problem.SCHEMA
        for operations in schema["paths"].values():
            for operation in operations.values():
                operation["responses"].update(_problems())
        return schema


api = Documented(
    title="Weir",
    version="1",
    description="Watch and steer an event-processing plant.",
    openapi_url="/schema",
    docs_url=None,  # its page would load scripts from elsewhere
    auth=Caller(),
    parser=Documents(),
    urls_namespace="api",
)
add_refusals(api)
plant_control.add_plant_refusals(api)
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
    plants,
    dead_letters,
    lab,
    ladders,
):
    api.add_router("/v1", part.router)


def _problems() -> dict[str, Any]:
    """What each operation may answer when it refuses, or fails."""
    told = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        str(status): {"description": HTTPStatus(status).phrase, "content": {problem.CONTENT_TYPE: told}}
        for status in PROBLEMS
    }


def urls() -> Any:
    """The API's addresses."""
    return _asking(api)


def control_urls() -> Any:
    """The addresses of the control API of the plants."""
    return _asking(plant_control.api)


def _asking(of: NinjaAPI) -> Any:
    """Endpoints ask for themselves who calls, and answer 401, not a login page."""
    patterns, application, namespace = of.urls
    for pattern in patterns:
        vars(pattern.callback)["login_required"] = False
    return patterns, application, namespace
