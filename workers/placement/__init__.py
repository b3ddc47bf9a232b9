"""Placement of containers: plans, their approval, their execution, and their rollback."""
