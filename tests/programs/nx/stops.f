c     Ends by STOP, just after a long message to node 0.
      program stops
      include 'fnx.h'
      integer i, text(50000)
      call gsync()
      if (mynode() .eq. 0) then
        do 10 i = 2, numnodes()
 10     call crecv(5, text, 200000)
      else
        call csend(5, text, 200000, 0, 0)
      end if
      stop
      end
