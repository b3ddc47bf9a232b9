"""What kinds of loops are made of: their declaration, and what several of them observe or do alike."""
