"""Requests to the API and their answers: authentication, formats, schemas, and rejections."""
