"""The feedback loops: what batches measured -> what later batches run with. Results never depend on them."""
