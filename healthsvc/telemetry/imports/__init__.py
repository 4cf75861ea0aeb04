"""Logs and dumps of any origin as a recording: `import_files` reads them all and writes the folder."""

from healthsvc.telemetry.imports.reading import FileReport, Imported, ImportSpec, import_files
from healthsvc.telemetry.imports.text import ImportFileError

__all__ = ["FileReport", "ImportFileError", "ImportSpec", "Imported", "import_files"]
