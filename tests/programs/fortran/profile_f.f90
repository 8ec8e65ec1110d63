! A tool in Fortran that stands before MPI_SEND.
subroutine MPI_SEND(buf, count, datatype, dest, tag, comm, ierror)
  implicit none
  type(*), dimension(*) :: buf
  !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
  integer :: count, datatype, dest, tag, comm, ierror
  interface
    subroutine PMPI_SEND(buf, count, datatype, dest, tag, comm, ierror)
      type(*), dimension(*) :: buf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      integer :: count, datatype, dest, tag, comm, ierror
    end subroutine
  end interface
  print '(a,i0,a)', 'sending ', count, ' in Fortran'
  call PMPI_SEND(buf, count, datatype, dest, tag, comm, ierror)
end subroutine
