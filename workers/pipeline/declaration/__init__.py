"""An application as people write it, checked; and the controls that it begins with."""
