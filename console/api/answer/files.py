"""Answers that are files: the `openapi_extra` of their routes."""

from typing import Any

from console.actions.exports import CSV, JSON_LINES


def file_of(description: str, *content_types: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a file of one of these types."""
    content = {
        content_event_type.partition(";")[0]: {"schema": {"type": "string"}}
        for content_event_type in content_types
    }
    return {"responses": {200: {"description": description, "content": content}}}


EXPORTED_ROWS = file_of("Rows, newest first, in `format`: CSV, or JSON lines.", CSV, JSON_LINES)
STORED_BYTES = file_of("The bytes, as a file.", "application/octet-stream")
