"""One queue's share on one node: appended, claimed, acknowledged, measured, dead-lettered."""
