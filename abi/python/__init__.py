"""Margay's MPI as a Python package: where its files are.

The package puts the tree of an installation into the environment itself: ``mpiexec``, ``mpicc`` and the like into its
``bin``, the library into ``lib``, the headers into ``include``.
"""

import importlib.metadata
import pathlib

__all__ = ["bin", "include", "lib", "library", "prefix"]

_DISTRIBUTION = "margay-mpi"

__version__ = importlib.metadata.version(_DISTRIBUTION)


def prefix() -> pathlib.Path:
    """The folder with bin, lib, include and share."""
    for file in importlib.metadata.files(_DISTRIBUTION) or []:
        path = pathlib.Path(file.locate()).resolve()
        if path.parts[-2:] == ("lib", "libmpi_abi.so.1"):
            return path.parent.parent
    raise FileNotFoundError(f"{_DISTRIBUTION} is not installed completely; install it again")


def bin() -> pathlib.Path:
    """The folder of mpiexec and the compiler wrappers."""
    return prefix() / "bin"


def include() -> pathlib.Path:
    """The folder of mpi.h."""
    return prefix() / "include"


def lib() -> pathlib.Path:
    """The folder of the library."""
    return prefix() / "lib"


def library() -> pathlib.Path:
    """The library, for ``ctypes.CDLL`` and for the environment variable ``MPI4PY_LIBMPI``."""
    return lib() / "libmpi_abi.so.1"
