"""The scalar functions, by what they are of. The registry is `frontend/functions`."""
