# gdb loads this file with the library beside it, where `auto-load safe-path` permits it; docs/openmp.md says more.
import importlib.util
import os
import sys


def load():
    here = os.path.dirname(os.path.realpath(__file__))
    while not os.path.exists(os.path.join(here, "share/margay/gdb/margay_gdb.py")):
        above = os.path.dirname(here)
        if above == here:
            return
        here = above
    name = "margay_gdb"
    if name not in sys.modules:
        path = os.path.join(here, "share/margay/gdb/margay_gdb.py")
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


load()
