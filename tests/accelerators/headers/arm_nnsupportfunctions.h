/* Tells version 7.0 from those before it. */
#define REVERSE_TCOL_EFFICIENT_THRESHOLD (16)
