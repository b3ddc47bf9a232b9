"""The kinds of loops, one module each: what a loop observes and sets, and which targets have one."""
