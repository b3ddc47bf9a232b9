"""Dispatch: which replica processes which entries. Entries are admitted, divided, and assigned."""
