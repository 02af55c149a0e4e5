"""Instructions of Cortex-M as programs have them: decoded as far as their time depends on it."""
