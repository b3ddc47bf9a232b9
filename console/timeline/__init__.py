"""The timeline: the history of the plant, drawn and exported."""
