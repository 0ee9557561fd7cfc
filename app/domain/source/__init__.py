"""Source text of programs: regions, syntax trees, functions, imports, edits and differences."""
