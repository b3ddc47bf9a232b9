"""Tests of `workers.control.kinds`: the loops of each."""
