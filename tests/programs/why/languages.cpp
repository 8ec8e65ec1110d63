// Two ranks, of each of which two threads receive what nobody sends.
#include <mpi.h>
#include <thread>

struct Listener {
    int from;
    void operator()() const
    {
        int number = 0;
        MPI_Recv(&number, 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE); // LINE first
    }
};

static void listen(int from)
{
    double number = 0;
    MPI_Recv(&number, 1, MPI_DOUBLE, from, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE); // LINE second
}

int main(int argc, char **argv)
{
    int level, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::thread first(Listener{1 - rank});
    std::thread second(listen, 1 - rank);
    first.join();
    second.join();
    MPI_Finalize();
}
