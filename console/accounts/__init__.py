"""Who may do what: people, roles, tokens, sessions, second factors."""
