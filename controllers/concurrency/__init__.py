"""The pool size of a worker host."""
