"""model.json, crtexport's own format: readable, writable by hand, documented by its schema."""

from crtexport.importers.crtjson.document import schema
from crtexport.importers.crtjson.reading import read
from crtexport.importers.crtjson.writing import save, sidecar_of

__all__ = ["read", "save", "schema", "sidecar_of"]
