"""An answer of the API: what schemas are made of, and routes that declare theirs."""
