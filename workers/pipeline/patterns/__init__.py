"""What is looked for: patterns, their conditions and automata, and the graph between them."""
