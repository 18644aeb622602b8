"""The package as a zip file for executors: they need its code, and everything else they have already.

What it depends on (pyarrow, numba, numpy, crc32c, lz4, cramjam, backports.zstd) has to be installed on them.
"""

import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

from fencepost.spark.requirements import is_connect, setting
from fencepost.version import __version__

PACKAGE = Path(__file__).parents[1]
_SUFFIXES = {".py", ".json", ".typed", ".pyi"}
_shipped: set[str] = set()
_lock = threading.Lock()


def package_zip(directory: str | Path | None = None) -> Path:
    """A zip file with the package in it, named after its version."""
    target = Path(directory or tempfile.mkdtemp(prefix="fencepost-")) / f"fencepost-{__version__}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for file in sorted(PACKAGE.rglob("*")):
            if file.suffix in _SUFFIXES and "__pycache__" not in file.parts:
                made.write(file, Path(PACKAGE.name) / file.relative_to(PACKAGE))
    return target


def ship(spark: Any) -> None:
    """Once per application, and only where executors run elsewhere: a local Spark uses this very installation."""
    if setting(spark, "spark.master").startswith("local") or not PACKAGE.exists():
        return
    application = spark.client._session_id if is_connect(spark) else spark.sparkContext.applicationId
    with _lock:
        if application in _shipped:
            return
        package = str(package_zip())
        if is_connect(spark):
            spark.addArtifacts(package, pyfile=True)
        else:
            spark.sparkContext.addPyFile(package)
        _shipped.add(application)
