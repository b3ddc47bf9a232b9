"""One kind of loop a module: what it observes, what it sets, and which targets have one."""
