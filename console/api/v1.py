"""The API, version 1: `/api/v1/…`, its OpenAPI document at `/api/schema`."""

import functools
from http import HTTPStatus
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema, get_schema

from console.api.ingestion import chat, events
from console.api.request.answers import AnswerRenderer, NamedOperations, build_schemas
from console.api.request.authentication import Caller
from console.api.request.refusals import add_refusals
from console.api.routes import (
    account,
    alert_rules,
    alerts,
    audit,
    control,
    dead_letters,
    drills,
    fairness,
    incidents,
    lab,
    ledger,
    manual_changes,
    objectives,
    offset_resets,
    pipelines,
    plans,
    plant,
    plant_control,
    plants,
    proposals,
    queues,
    reports,
    retries,
    revocations,
    task_history,
    tasks,
    timeline,
    windows,
)
from console.input.boundary import Documents
from console.live.view import NARROWED
from console.web import problem

PROBLEMS = (400, 401, 403, 404, 405, 413, 415, 422, 429, 500, 503)
# Only for changes: the request is already being carried out, or another controller holds the plant.
CONFLICTS = (409,)


class DocumentedApi(NamedOperations):
    """An API whose document also contains the control API of the plants, which has its own addresses."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        return _document(self.get_root_path(path_params or {}) if path_prefix is None else path_prefix)


api = DocumentedApi(
    title="Weir",
    version="1",
    description="Observe and control an event-processing plant.",
    openapi_url="/schema",
    docs_url=None,  # its page would load external scripts
    auth=Caller(),
    parser=Documents(),
    renderer=AnswerRenderer(),
    urls_namespace="api",
)
add_refusals(api)
plant_control.add_plant_refusals(api)
for part in (
    plant,
    timeline,
    control,
    ledger,
    manual_changes,
    audit,
    account,
    plans,
    offset_resets,
    retries,
    revocations,
    alerts,
    incidents,
    alert_rules,
    chat,
    events,
    tasks,
    task_history,
    pipelines,
    plants,
    dead_letters,
    drills,
    lab,
    queues,
    fairness,
    proposals,
    objectives,
    reports,
    windows,
):
    api.add_router("/v1", part.router)


@functools.cache
def _document(path_prefix: str) -> OpenAPISchema:
    """Return the document, built once: routes don't change, and it is public."""
    schema = get_schema(api, path_prefix)
    other = get_schema(plant_control.api, "/control/")
    schema["paths"].update(other["paths"])
    for kind, named in other["components"].items():
        schema["components"].setdefault(kind, {}).update(named)
    answers, documents = build_schemas(NARROWED)
    schema["components"]["schemas"].update(documents, Problem=problem.SCHEMA)
    for operations in schema["paths"].values():
        for method, operation in operations.items():
            for status, answer in answers.get(operation["operationId"], {}).items():
                operation["responses"][status]["content"] = {"application/json": {"schema": answer}}
            operation["responses"].update(_build_problem_responses(method))
    return schema


def list_problem_statuses(method: str) -> tuple[int, ...]:
    """Return the statuses with which an operation rejects a request, or fails."""
    return PROBLEMS if method == "get" else (*PROBLEMS, *CONFLICTS)


def _build_problem_responses(method: str) -> dict[int, Any]:
    """Return the answers of those statuses."""
    told = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {problem.CONTENT_TYPE: told}}
        for status in list_problem_statuses(method)
    }


def urls() -> Any:
    """Return the API's URL patterns."""
    return _wrap_endpoint(api)


def control_urls() -> Any:
    """Return the URL patterns of the control API of the plants."""
    return _wrap_endpoint(plant_control.api)


def _wrap_endpoint(of: NinjaAPI) -> Any:
    """Wrap an endpoint, which authenticates its caller itself, and answers 401, not a login page."""
    patterns, application, namespace = of.urls
    for pattern in patterns:
        vars(pattern.callback)["login_required"] = False
    return patterns, application, namespace
