"""The types of Redis replies in Weir, for `typing.cast`: bytes.

redis-py's own types allow text as well, which only a connection with `decode_responses` gets.
"""

Fields = dict[bytes, bytes]
"""A hash, or the fields of a stream's entry."""

Entries = list[tuple[bytes, Fields]]
"""A range of a stream: the id and the fields of each entry."""
