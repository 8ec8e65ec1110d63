"""Two ranks in Python that call MPI by its C names, from functions, a loop and a thread; with a second word they wait for ever."""
import ctypes
import sys
import threading

mpi = ctypes.CDLL(sys.argv[1])
world = ctypes.c_void_p(0x101)
status = ctypes.c_void_p(0)
integer = ctypes.c_void_p(0x209)
rank = ctypes.c_int()
number = ctypes.c_int(7)


def send():
    mpi.MPI_Send(ctypes.byref(number), 1, integer, 1, 5, world)  # LINE send


def receive(source):
    return mpi.MPI_Recv(ctypes.byref(number), 1, integer, source, 5, world, status)  # LINE receive


def meet():
    mpi.MPI_Barrier(world)  # LINE thread


def main():
    mpi.MPI_Init_thread(None, None, 4096, ctypes.byref(ctypes.c_int()))  # LINE init
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    for _ in range(10):
        send() if rank.value == 0 else receive(0)
    thread = threading.Thread(target=meet)
    thread.start()
    thread.join()
    if len(sys.argv) > 2:
        print("ready", flush=True)
        receive(1 - rank.value)
    mpi.MPI_Finalize()


main()
