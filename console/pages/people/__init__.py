"""People and their accounts: login, second factors, tokens, sessions."""
