! fmlp.h: Multi-Level Parallelism, Margay.
! Printed by `cargo xtask header`; see docs/mlp.md.
      integer MLP_OWNER_DIED
      parameter (MLP_OWNER_DIED = 1)
      integer MLP_ERR_ARGUMENT
      parameter (MLP_ERR_ARGUMENT = -1)
      integer MLP_ERR_STATE
      parameter (MLP_ERR_STATE = -2)
      integer MLP_ERR_MEMORY
      parameter (MLP_ERR_MEMORY = -3)
      integer MLP_ERR_NAME
      parameter (MLP_ERR_NAME = -4)
      integer MLP_ERR_DEATH
      parameter (MLP_ERR_DEATH = -5)
      integer MLP_ERR_LOCK
      parameter (MLP_ERR_LOCK = -6)
      integer MLP_ERR_SYSTEM
      parameter (MLP_ERR_SYSTEM = -7)
      integer MLP_ERRORS_END
      parameter (MLP_ERRORS_END = 0)
      integer MLP_ERRORS_RETURN
      parameter (MLP_ERRORS_RETURN = 1)
      integer MLP_LIVING
      parameter (MLP_LIVING = 1)
      integer MLP_ENDED
      parameter (MLP_ENDED = 2)
      integer MLP_DEAD
      parameter (MLP_DEAD = 3)
      integer MLP_UNKNOWN
      parameter (MLP_UNKNOWN = 1000)
      interface
      subroutine forkit(nthread, numpro, nowpro)
      integer, dimension(*) :: nthread
      integer numpro
      integer nowpro
      end subroutine
      function mlp_arena(bytes)
      integer(selected_int_kind(18)) bytes
      integer mlp_arena
      end function
      function mlp_alloc(name, bytes)
      character(len=*) name
      integer(selected_int_kind(18)) bytes
      integer(selected_int_kind(18)) mlp_alloc
      end function
      function mlp_find(name, bytes)
      character(len=*) name
      integer(selected_int_kind(18)) bytes
      integer(selected_int_kind(18)) mlp_find
      end function
      function mlp_free(name)
      character(len=*) name
      integer mlp_free
      end function
      function mlp_process()
      integer mlp_process
      end function
      function mlp_processes()
      integer mlp_processes
      end function
      function mlp_barrier()
      integer mlp_barrier
      end function
      function mlp_lock(lock)
      integer lock
      integer mlp_lock
      end function
      function mlp_trylock(lock, got)
      integer lock
      integer got
      integer mlp_trylock
      end function
      function mlp_unlock(lock)
      integer lock
      integer mlp_unlock
      end function
      function mlp_threads()
      integer mlp_threads
      end function
      function mlp_pin(thread)
      integer thread
      integer mlp_pin
      end function
      function mlp_lend(cpus)
      integer cpus
      integer mlp_lend
      end function
      function mlp_borrow(cpus)
      integer cpus
      integer mlp_borrow
      end function
      function mlp_reclaim()
      integer mlp_reclaim
      end function
      function mlp_return()
      integer mlp_return
      end function
      function mlp_idle()
      integer mlp_idle
      end function
      function mlp_place(name, offset, bytes, process)
      character(len=*) name
      integer(selected_int_kind(18)) offset
      integer(selected_int_kind(18)) bytes
      integer process
      integer(selected_int_kind(18)) mlp_place
      end function
      function mlp_elsewhere(name, offset, bytes, process)
      character(len=*) name
      integer(selected_int_kind(18)) offset
      integer(selected_int_kind(18)) bytes
      integer process
      integer(selected_int_kind(18)) mlp_elsewhere
      end function
      function mlp_report()
      integer mlp_report
      end function
      function mlp_report_text(text)
      character(len=*) text
      integer(selected_int_kind(18)) mlp_report_text
      end function
      function mlp_errors(mode)
      integer mode
      integer mlp_errors
      end function
      function mlp_error(text)
      character(len=*) text
      integer(selected_int_kind(18)) mlp_error
      end function
      function mlp_state(process, status)
      integer process
      integer status
      integer mlp_state
      end function
      function mlp_shrink()
      integer mlp_shrink
      end function
      end interface
