"""The plant's state at one instant: composed into one document and published every second."""
