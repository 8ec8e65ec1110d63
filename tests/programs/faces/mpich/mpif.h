! What MPICH's mpif.h says, as far as the test programs need it.
      integer MPI_ADDRESS_KIND, MPI_OFFSET_KIND
      parameter (MPI_ADDRESS_KIND=8, MPI_OFFSET_KIND=8)
      integer MPI_SUCCESS
      parameter (MPI_SUCCESS=0)
      integer MPI_ERR_RANK
      parameter (MPI_ERR_RANK=6)
      integer MPI_COMM_WORLD
      parameter (MPI_COMM_WORLD=1140850688)
      integer MPI_COMM_SELF
      parameter (MPI_COMM_SELF=1140850689)
      integer MPI_COMM_NULL
      parameter (MPI_COMM_NULL=67108864)
      integer MPI_INTEGER
      parameter (MPI_INTEGER=1275069467)
      integer MPI_DOUBLE_PRECISION
      parameter (MPI_DOUBLE_PRECISION=1275070495)
      integer MPI_LOGICAL
      parameter (MPI_LOGICAL=1275069469)
      integer MPI_2DOUBLE_PRECISION
      parameter (MPI_2DOUBLE_PRECISION=1275072547)
      integer MPI_SUM
      parameter (MPI_SUM=1476395011)
      integer MPI_MAXLOC
      parameter (MPI_MAXLOC=1476395020)
      integer MPI_OP_NULL
      parameter (MPI_OP_NULL=402653184)
      integer MPI_REQUEST_NULL
      parameter (MPI_REQUEST_NULL=738197504)
      integer MPI_INFO_NULL
      parameter (MPI_INFO_NULL=469762048)
      integer MPI_FILE_NULL
      parameter (MPI_FILE_NULL=0)
      integer MPI_GROUP_NULL
      parameter (MPI_GROUP_NULL=134217728)
      integer MPI_ERRORS_RETURN
      parameter (MPI_ERRORS_RETURN=1409286145)
      integer MPI_ERRHANDLER_NULL
      parameter (MPI_ERRHANDLER_NULL=335544320)
      integer MPI_ANY_SOURCE
      parameter (MPI_ANY_SOURCE=-2)
      integer MPI_ANY_TAG
      parameter (MPI_ANY_TAG=-1)
      integer MPI_PROC_NULL
      parameter (MPI_PROC_NULL=-1)
      integer MPI_UNDEFINED
      parameter (MPI_UNDEFINED=-32766)
      integer MPI_TAG_UB
      parameter (MPI_TAG_UB=1681915906)
      integer MPI_WIN_SIZE
      parameter (MPI_WIN_SIZE=1711276036)
      integer MPI_MODE_CREATE
      parameter (MPI_MODE_CREATE=1)
      integer MPI_MODE_RDWR
      parameter (MPI_MODE_RDWR=8)
      integer MPI_MODE_DELETE_ON_CLOSE
      parameter (MPI_MODE_DELETE_ON_CLOSE=16)
      integer MPI_ORDER_FORTRAN
      parameter (MPI_ORDER_FORTRAN=57)
      integer MPI_MAX_ERROR_STRING
      parameter (MPI_MAX_ERROR_STRING=512)
      integer MPI_SOURCE
      parameter (MPI_SOURCE=3)
      integer MPI_TAG
      parameter (MPI_TAG=4)
      integer MPI_STATUS_SIZE
      parameter (MPI_STATUS_SIZE=5)
      integer MPI_BOTTOM, MPI_IN_PLACE, MPI_STATUS_IGNORE(5)
      integer MPI_STATUSES_IGNORE(5,1), MPI_ERRCODES_IGNORE(1)
      common /mpipriv1/ MPI_BOTTOM, MPI_IN_PLACE, MPI_STATUS_IGNORE
      common /mpipriv2/ MPI_STATUSES_IGNORE, MPI_ERRCODES_IGNORE
