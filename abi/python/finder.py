"""Lets a binary package of mpi4py find Margay when its program is not started by ``mpiexec``.

``start.pth`` (``margay_mpi.pth`` once installed) imports this module whenever Python starts, so it does next to nothing until mpi4py is imported.
"""

import os
import sys


class _Finder:
    """Finds nothing; before mpi4py is imported it names the library that mpi4py's binary modules were linked with."""

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname == "mpi4py":
            sys.meta_path.remove(cls)
            if not {"MPI4PY_LIBMPI", "MPI4PY_MPIABI"} & os.environ.keys():
                library = _library()
                if library:
                    os.environ["MPI4PY_LIBMPI"] = library
        return None


def _library():
    """Margay with MPICH's ABI, or None where mpi4py finds a library without help."""
    # The package's files lie in lib/python3.N/site-packages of an environment, and the libraries in lib.
    lib = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    library = os.path.join(lib, "faces", "libmpi.so.12")
    others = ("libmpi.so.12", "libmpi.so.40")
    if not os.path.exists(library) or any(os.path.exists(os.path.join(lib, other)) for other in others):
        return None
    for folder in sys.path:
        try:
            files = os.listdir(os.path.join(folder, "mpi4py"))
        except OSError:
            continue
        kinds = {file.split(".")[1] for file in files if file.startswith("MPI.") and file.endswith(".so")}
        return library if "mpich" in kinds and "mpiabi" not in kinds else None
    return None


sys.meta_path.insert(0, _Finder)
