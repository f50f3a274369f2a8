"""Between the eras: upstream sessions and calls held for clients of the other era."""
