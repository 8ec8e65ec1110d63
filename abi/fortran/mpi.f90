! use mpi
module mpi
  use mpi_f08_types
  use mpi_constants
  use mpi_interfaces
  use mpi_pinterfaces
  use mpi_sizeofs
  implicit none
  public

  interface
    subroutine MPI_F_SYNC_REG(buf)
      type(*), dimension(*) :: buf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DIR$ IGNORE_TKR buf
    end subroutine
    subroutine PMPI_F_SYNC_REG(buf)
      type(*), dimension(*) :: buf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf
      !DIR$ IGNORE_TKR buf
    end subroutine
  end interface
end module
