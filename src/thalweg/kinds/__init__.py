"""What kinds of all sorts have in common: a registry by name, and options that are structs."""
