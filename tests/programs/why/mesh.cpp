// A program without MPI whose functions have names of C++.
#include <cstdio>

namespace mesh {
template <class Number> struct Grid {
    volatile Number sum = 0;
    [[gnu::noinline]] void smooth(int n)
    {
        for (;;)
            for (int i = 0; i < n; i++)
                sum = sum + i; // LINE smooth
    }
};
} // namespace mesh

int main()
{
    std::puts("ready");
    std::fflush(stdout);
    mesh::Grid<double> grid;
    grid.smooth(1000);
}
