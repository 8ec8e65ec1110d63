# SPDX-License-Identifier: Apache-2.0
"""Margay for Spack: `spack repo add packaging/spack`, then `spack install --no-checksum margay`."""

import os

from spack.package import *


class Margay(MakefilePackage):
    """MPI 5.0 with the standard ABI, an OpenMP runtime, and the older interfaces NX, MPL, MLP and IML, with a launcher that says
    why a program hangs. All ranks run on one machine."""

    # The archive is made by `git archive --prefix=margay-0.1.0/ -o margay-0.1.0.tar.gz HEAD`.
    manual_download = True
    url = f"file://{os.getcwd()}/margay-0.1.0.tar.gz"

    license("Apache-2.0")

    version("0.1.0")

    variant("fortran", default=True, description="Build the Fortran modules and library")

    provides("mpi@:5.0")

    depends_on("c", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("rust@1.95:", type="build")
    depends_on("gmake", type="build")

    conflicts("platform=darwin", msg="Margay needs Linux")
    conflicts("platform=windows", msg="Margay needs Linux")

    def setup_build_environment(self, env):
        # The tree's modules are for the compiler of the environment, not for the first gfortran of the system.
        env.set("MPICC_CC", spack_cc)
        # A name that is not there leaves Fortran out.
        env.set("MPIFORT_FC", spack_fc if self.spec.satisfies("+fortran") else "no-fortran")

    def build(self, spec, prefix):
        make("build-stage")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", prefix)

    def setup_dependent_build_environment(self, env, dependent_spec):
        env.set("MPICC_CC", spack_cc)
        env.set("MPICXX_CXX", spack_cxx)
        env.set("MPIFORT_FC", spack_fc)

    def setup_dependent_package(self, module, dependent_spec):
        self.spec.mpicc = join_path(self.prefix.bin, "mpicc")
        self.spec.mpicxx = join_path(self.prefix.bin, "mpicxx")
        self.spec.mpif77 = join_path(self.prefix.bin, "mpif77")
        self.spec.mpifc = join_path(self.prefix.bin, "mpif90")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_launcher(self):
        mpiexec = Executable(join_path(self.prefix.bin, "mpiexec"))
        mpiexec("-n", "2", "true")
