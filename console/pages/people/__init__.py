"""Accounts of people: login, second factors, tokens, and sessions."""
