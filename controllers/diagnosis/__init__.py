"""Diagnosis of faults: the probable causes of a fault, and the differences during the fault."""
