"""When each operator runs and where each tensor lives."""
