"""What outlives a process: containers of buckets, manifests, intents, the log of requests, the lock."""
