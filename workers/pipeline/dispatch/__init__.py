"""Which replica works which entries: admitted, divided, assigned."""
