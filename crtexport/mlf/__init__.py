"""Model Library Format: the tar archive of an export, written and read.

The layout and the metadata keys are those of TVM's version 7; everything that version has no place
for is in the folder ``crtexport/`` and under the key ``crtexport``. No module here knows how code
is generated or built.
"""
