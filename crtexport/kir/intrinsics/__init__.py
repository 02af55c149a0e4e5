"""Instructions of processors: what each computes, its spelling in C and in LLVM."""
