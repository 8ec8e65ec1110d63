"""Two ranks, of each of which two threads receive what nobody sends; the argument is the library."""
import ctypes
import sys
import threading

mpi = ctypes.CDLL(sys.argv[1])
world = ctypes.c_void_p(0x101)
integer = ctypes.c_void_p(0x209)
rank = ctypes.c_int()


def first():
    number = ctypes.c_int()
    mpi.MPI_Recv(ctypes.byref(number), 1, integer, 1 - rank.value, 5, world, None)  # LINE first


def second():
    number = ctypes.c_int()
    mpi.MPI_Recv(ctypes.byref(number), 1, integer, 1 - rank.value, 6, world, None)  # LINE second


mpi.MPI_Init_thread(None, None, 4096, ctypes.byref(ctypes.c_int()))
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
threads = [threading.Thread(target=first), threading.Thread(target=second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
mpi.MPI_Finalize()
