! use mpi_f08
module mpi_f08
  use mpi_f08_types
  use mpi_f08_constants
  use mpi_f08_callbacks
  use mpi_f08_interfaces
  use mpi_f08_pinterfaces
  use mpi_sizeofs
  implicit none
  public

  interface MPI_F_sync_reg
    subroutine MPI_F_sync_reg_f08ts(buf) bind(C, name="mpi_f_sync_reg_f08ts_")
      type(*), dimension(..), asynchronous :: buf
    end subroutine
  end interface
  interface PMPI_F_sync_reg
    subroutine PMPI_F_sync_reg_f08ts(buf) bind(C, name="pmpi_f_sync_reg_f08ts_")
      type(*), dimension(..), asynchronous :: buf
    end subroutine
  end interface
end module
