"""Where every figure of this project comes from."""
