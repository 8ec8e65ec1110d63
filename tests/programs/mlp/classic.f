C     MLP in fixed form, as the programs of its time were written.
      program classic
      include 'fmlp.h'
      integer nthread(3), nowpro, i, ierr, igot, istat
      integer flag(16), lock
      integer(selected_int_kind(18)) iaddr, ibytes, nall
      character*2000 text
      pointer (pflag, flag)
      pointer (plock, lock)
      do i = 1, 3
         nthread(i) = 1
      enddo
      ierr = mlp_arena(int(2000000, selected_int_kind(18)))
      write (*, '(a)') 'before the fork, once'
      call forkit(nthread, 3, nowpro)
      if (nowpro .ne. mlp_process()) stop 11
      if (mlp_processes() .ne. 3) stop 12
      pflag = mlp_alloc('flags', int(64, selected_int_kind(18)))
      plock = mlp_alloc('lock   ', int(4, selected_int_kind(18)))
      iaddr = mlp_find('lock', ibytes)
      if (iaddr .ne. plock .or. ibytes .ne. 4) stop 13
      flag(nowpro) = nowpro*nowpro
      ierr = mlp_barrier()
      if (flag(1) + flag(2) + flag(3) .ne. 14) stop 14
      do i = 1, 1000
         ierr = mlp_lock(lock)
         flag(5) = flag(5) + 1
         ierr = mlp_unlock(lock)
      enddo
      ierr = mlp_barrier()
      if (flag(5) .ne. 3000) stop 15
      if (nowpro .eq. 1) then
         ierr = mlp_trylock(lock, igot)
         if (igot .ne. 1) stop 16
         ierr = mlp_unlock(lock)
         nall = mlp_report_text(text)
         if (index(text, '3 processes, 3 threads') .eq. 0) stop 17
         if (text(nall + 1:) .ne. ' ') stop 18
         if (mlp_state(2, istat) .ne. MLP_LIVING) stop 19
      endif
      ierr = mlp_errors(MLP_ERRORS_RETURN)
      if (mlp_free('nothing') .ne. MLP_ERR_NAME) stop 20
      nall = mlp_error(text)
      if (text(1:26) .ne. "mlp_free: the arena has no") stop 21
      ierr = mlp_barrier()
      write (*, '(a, i0)') 'ok ', nowpro
      end
