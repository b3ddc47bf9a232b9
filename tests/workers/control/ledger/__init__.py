"""Tests of `workers.control.ledger`."""
