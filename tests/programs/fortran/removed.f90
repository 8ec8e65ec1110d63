! MPI-1 with `use mpi`: the interfaces of what MPI-3 removed.
program removed
  use mpi
  implicit none
  type item
    sequence
    double precision :: x(2)
    integer :: n
    integer :: padding
  end type
  type(item) :: items(3)
  integer :: ierror, rank, place(3), lengths(3), types(3), new, extent, lb
  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Address(items(1)%x, place(1), ierror)
  call MPI_Address(items(1)%n, place(2), ierror)
  call MPI_Address(items(2)%x, place(3), ierror)
  place = place - place(1)
  lengths = (/2, 1, 1/)
  types = (/MPI_DOUBLE_PRECISION, MPI_INTEGER, MPI_UB/)
  call MPI_Type_struct(3, lengths, place, types, new, ierror)
  call MPI_Type_commit(new, ierror)
  call MPI_Type_extent(new, extent, ierror)
  call MPI_Type_lb(new, lb, ierror)
  if (extent /= 24 .or. lb /= 0) stop 1
  items(:)%n = rank + (/1, 2, 3/)
  items(:)%padding = rank
  call MPI_Bcast(items, 3, new, 0, MPI_COMM_WORLD, ierror)
  if (any(items(:)%n /= (/1, 2, 3/)) .or. any(items(:)%padding /= rank)) stop 2
  call MPI_Type_free(new, ierror)
  if (rank == 0) print '(a)', 'ok'
  call MPI_Finalize(ierror)
end program
