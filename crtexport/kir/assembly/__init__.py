"""Hot loops of kernels as instructions of Armv7-M and its successors, in the order that takes the
fewest cycles there."""
