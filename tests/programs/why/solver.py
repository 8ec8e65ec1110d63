"""Rank 0 waits in a barrier, and rank 1 computes for ever: the library is called by its C names."""
import ctypes
import sys

mpi = ctypes.CDLL(sys.argv[1])
world = ctypes.c_void_p(0x101)


def relax(values):
    while True:
        values[0] = 0.5 * values[0] + 1.0  # LINE relax


class Grid:
    def exchange(self):
        print("ready", flush=True)
        mpi.MPI_Barrier(world)  # LINE exchange


def main():
    rank = ctypes.c_int()
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    if rank.value == 1:
        print("ready", flush=True)
        relax([1.0] * 1000)
    Grid().exchange()  # LINE main
    mpi.MPI_Finalize()


main()  # LINE script
