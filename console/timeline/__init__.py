"""The timeline: what happened when, drawn and exported."""
