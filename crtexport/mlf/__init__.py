"""Model Library Format: the tar archive that an export is, written and read.

The layout and the metadata keys are those of TVM's version 7; what that version has no place for
stands in the folder ``crtexport/`` and under the key ``crtexport``. No module here knows how code
is generated or built.
"""
