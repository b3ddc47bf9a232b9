"""Requests to the API: authentication, formats, and rejections."""
