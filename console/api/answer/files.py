"""Answers that are files: the `openapi_extra` of their routes."""

from typing import Any

from console.actions.exports import CSV, JSON_LINES


def build_file_schema(description: str, *content_types: str) -> dict[str, Any]:
    """Return the `openapi_extra` of a file of one of these types."""
    content = {
        content_event_type.partition(";")[0]: {"schema": {"type": "string"}} for content_event_type in content_types
    }
    return {"responses": {200: {"description": description, "content": content}}}


EXPORTED_ROWS = build_file_schema("Rows, newest first, in `format`: CSV, or JSON lines.", CSV, JSON_LINES)
STORED_BYTES = build_file_schema("The bytes, as a file.", "application/octet-stream")
