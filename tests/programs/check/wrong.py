"""Two ranks in Python that call MPI by its C names, and err in the types of a message, in the use of a buffer and in a leak."""
import ctypes

mpi = ctypes.CDLL(None)
world = ctypes.c_void_p(0x101)
status = ctypes.c_void_p(0)
integer = ctypes.c_void_p(0x209)
real = ctypes.c_void_p(0x210)
rank = ctypes.c_int()
number = ctypes.c_int(7)
request = ctypes.c_void_p()


def send(tag):
    mpi.MPI_Send(ctypes.byref(number), 1, integer, 1, tag, world)  # LINE send


def receive(tag):
    mpi.MPI_Recv(ctypes.byref(number), 1, real, 0, tag, world, status)  # LINE receive


def store_too_early(buffer):
    memory = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    mpi.MPI_Irecv(memory, len(buffer) // 4, integer, 0, 2, world, ctypes.byref(request))  # LINE begun
    buffer[0] = 1  # LINE store
    mpi.MPI_Barrier(world)
    mpi.MPI_Wait(ctypes.byref(request), status)


def main():
    copy = ctypes.c_void_p()
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    if rank.value == 0:
        send(1)
        mpi.MPI_Barrier(world)
        send(2)
    else:
        receive(1)
        store_too_early(bytearray(4))
    mpi.MPI_Comm_dup(world, ctypes.byref(copy))  # LINE copy
    mpi.MPI_Finalize()  # LINE end


main()
