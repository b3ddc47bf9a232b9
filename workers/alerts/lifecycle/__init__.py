"""An alert from pending to resolved, and which alerts are open."""
