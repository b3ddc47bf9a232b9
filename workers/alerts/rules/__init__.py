"""What people define: alert rules, silences, and their matchers."""
