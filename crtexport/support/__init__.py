"""The foundation that every other part may use: errors, outputs, targets, arithmetic. Imports no
other part."""
