"""Proposals that wait for a person: plans, tunings, and assistants' proposals; approved by hash."""
