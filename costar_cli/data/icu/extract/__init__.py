"""Files of MIMIC-Extract (`all_hourly_data.h5`), read and written with pandas and PyTables (spec ICU-1).

pandas stores texts in such files as pickled objects; `store.py` admits arrays and texts alone.
"""

from costar_cli.data.icu.extract.read import check_extract, read_checked, read_extract
from costar_cli.data.icu.extract.store import check_extract_path, require_pytables, write_extract

__all__ = ["check_extract", "check_extract_path", "read_checked", "read_extract", "require_pytables", "write_extract"]
