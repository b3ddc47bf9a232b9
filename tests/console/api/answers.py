"""Answers of the API, held to what its document says of them."""

import functools
from typing import Any

import jsonschema_rs
import orjson
from django.http import HttpRequest, HttpResponse

from console.api import v1

JSON = "application/json"


def hold(request: HttpRequest, response: HttpResponse) -> None:
    """Raises ValidationError for an answer that is not as its schema says; refusals are held elsewhere."""
    if response.status_code >= 400 or request.resolver_match is None:
        return
    address = "/" + request.resolver_match.route.replace("<", "{").replace(">", "}")
    told = v1.api.get_openapi_schema()["paths"][address][request.method.lower()]["responses"]
    found = told[response.status_code]["content"][JSON]["schema"]
    validator(found["$ref"]).validate(orjson.loads(response.content))


@functools.cache
def validator(reference: str) -> Any:
    document = v1.api.get_openapi_schema()
    whole = {"$ref": reference, "components": {"schemas": document["components"]["schemas"]}}
    return jsonschema_rs.validator_for(whole, validate_formats=True)
