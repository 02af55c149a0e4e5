"""What becomes of networks that others have published."""
