"""Parts that all pages share: the frame, actions, lists, and the view of past times."""
