"""Authentication and authorization: people, roles, tokens, sessions, and second factors."""
