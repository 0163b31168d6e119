"""The work on buckets: computed columns and partials at the source, windows finished in the slots."""
