"""What a person sees of the engine: plans in words."""
