"""Systems fed at a pace: files released one by one, and how long after its last event a result arrives."""
