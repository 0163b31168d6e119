"""What outlives a process: containers of buckets, manifests, requests, terms, and the storage they are in."""
