"""Both ranks receive from each other, by mpi4py."""
from mpi4py import MPI

comm = MPI.COMM_WORLD


def exchange():
    return comm.recv(source=1 - comm.rank, tag=5)  # LINE receive


exchange()
