"""What the operator wrote: frozen slices, units, and errors that name file and line."""
