"""Each operator in Kernel IR, and the lowered stage that is made of them."""
