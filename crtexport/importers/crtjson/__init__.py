"""model.json, this project's own format: readable, writable by hand, documented by its schema."""

from crtexport.importers.crtjson.document import schema
from crtexport.importers.crtjson.reading import load_json
from crtexport.importers.crtjson.writing import save, sidecar_of

__all__ = ["load_json", "save", "schema", "sidecar_of"]
