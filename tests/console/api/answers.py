"""Answers of the API, held to what its document says of them."""

import functools
import re

import jsonschema_rs
import orjson

from console.api import v1

JSON = "application/json"


def hold(request, response):
    """Raises ValidationError for an answer that is not as its schema says; refusals are held elsewhere."""
    if response.status_code >= 400 or request.resolver_match is None:
        return
    address = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", request.resolver_match.route)
    told = v1.api.get_openapi_schema()["paths"][address][request.method.lower()]["responses"]
    found = told[response.status_code]["content"][JSON]["schema"]
    validator(orjson.dumps(found)).validate(orjson.loads(response.content))


@functools.cache
def validator(schema):
    """Return the validator of a schema that may name those of the document."""
    components = {"schemas": v1.api.get_openapi_schema()["components"]["schemas"]}
    return jsonschema_rs.validator_for({**orjson.loads(schema), "components": components}, validate_formats=True)


def validator_of(name):
    """Return the validator of a schema of the document."""
    return validator(orjson.dumps({"$ref": f"#/components/schemas/{name}"}))
