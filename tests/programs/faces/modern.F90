! What gfortran makes of a program that uses mpi_f08 of another MPI: calls of the module's procedures, and its constants. The
! interfaces stand here in place of the module. In MPICH's, buffers are of assumed rank; Open MPI's take addresses.
#ifdef MPICH
#define SEND mpi_send_f08ts
#define RECV mpi_recv_f08ts
#define BUFFER type(*), dimension(..)
#define SAME "__mpi_f08_types_MOD_mpi_comm_eq"
#define SIZEOF "__mpi_f08_types_MOD_mpi_sizeof_xint64"
#define WORDS 5
#else
#define SEND mpi_send_f08
#define RECV mpi_recv_f08
#define BUFFER type(*), dimension(*)
#define SAME "__mpi_f08_types_MOD_ompi_comm_op_eq"
#define SIZEOF "mpi_sizeof_int64_scalar_"
#define WORDS 6
#endif
program modern
  implicit none
  interface
    subroutine SEND(buf, count, datatype, dest, tag, comm, ierror)
      BUFFER :: buf
      integer, intent(in) :: count, datatype, dest, tag, comm
      integer, optional, intent(out) :: ierror
    end subroutine
    subroutine RECV(buf, count, datatype, source, tag, comm, status, ierror)
      BUFFER :: buf
      integer, intent(in) :: count, datatype, source, tag, comm
      integer :: status(*)
      integer, optional, intent(out) :: ierror
    end subroutine
    subroutine mpi_init_f08(ierror)
      integer, optional, intent(out) :: ierror
    end subroutine
    subroutine mpi_finalize_f08(ierror)
      integer, optional, intent(out) :: ierror
    end subroutine
    subroutine mpi_comm_rank_f08(comm, rank, ierror)
      integer, intent(in) :: comm
      integer, intent(out) :: rank
      integer, optional, intent(out) :: ierror
    end subroutine
    subroutine mpi_comm_get_name_f08(comm, name, length, ierror)
      integer, intent(in) :: comm
      character(len=*), intent(out) :: name
      integer, intent(out) :: length
      integer, optional, intent(out) :: ierror
    end subroutine
    logical function same(a, b) bind(C, name=SAME)
      integer, intent(in) :: a, b
    end function
    subroutine size_of(x, size, ierror) bind(C, name=SIZEOF)
      integer(8) :: x
      integer, intent(out) :: size
      integer, optional, intent(out) :: ierror
    end subroutine
  end interface
  integer :: comm, datatype, a(4, 4), b(4, 4), rank, status(WORDS), length, size
  character(len=20) :: name
  integer(8) :: big
  a = reshape([(length, length = 1, 16)], [4, 4])
  b = 0
  call constants(comm, datatype)
  call mpi_init_f08()
  call mpi_comm_rank_f08(comm, rank)
  ! Every second element: with assumed rank, the library sees the gaps; else the compiler makes copies.
  if (rank == 0) call SEND(a(1:4:2, 2), 2, datatype, 1, 5, comm)
  if (rank == 1) then
    call RECV(b(2:4:2, 3), 2, datatype, 0, 5, comm, status, length)
    if (length /= 0) error stop 'code'
    if (any(b(:, 3) /= [0, 5, 0, 7]) .or. any(b(:, [1, 2, 4]) /= 0)) error stop 'gaps'
    call SEND(a, 16, datatype, 0, 6, comm)
  else
    call RECV(b, 16, datatype, 1, 6, comm, status)
    if (any(a /= b)) error stop 'array'
  end if
  call mpi_comm_get_name_f08(comm, name, length)
  if (name(1:length) /= 'MPI_COMM_WORLD') error stop 'name'
  if (.not. same(comm, comm) .or. same(comm, datatype)) error stop 'operator'
  call size_of(big, size)
  if (size /= 8) error stop 'sizeof'
  call mpi_finalize_f08()
  if (rank == 0) print '(a)', 'ok'
end program
