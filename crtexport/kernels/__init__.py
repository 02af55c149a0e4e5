"""What the machine does: the Kernel IR and one lowering per operator."""
