! Thread-private variables, which flang finds by calls; reductions, tasks, locks and schedules as flang makes them.
module own
   implicit none
   integer :: value = 7
!$omp threadprivate(value)
end module

program flang
   use omp_lib
   use own
   implicit none
   integer :: i, failures, total, seen(0:4)
   integer(omp_nest_lock_kind) :: lock
   failures = 0
   total = 0
   seen = 0
   value = 9
!$omp parallel num_threads(5)
   if (omp_get_thread_num() > 0 .and. value /= 7) then
!$omp atomic
      failures = failures + 1
   end if
   value = 100 + omp_get_thread_num()
!$omp barrier
   seen(omp_get_thread_num()) = value
!$omp end parallel
   do i = 0, 4
      if (seen(i) /= 100 + i) failures = failures + 1
   end do
!$omp parallel num_threads(5)
   if (value /= 100 + omp_get_thread_num()) then
!$omp atomic
      failures = failures + 1
   end if
!$omp end parallel
   value = 55
!$omp parallel num_threads(5) copyin(value)
   if (value /= 55) then
!$omp atomic
      failures = failures + 1
   end if
!$omp end parallel
!$omp parallel do num_threads(4) schedule(dynamic, 3) reduction(+:total)
   do i = 100, 1, -1
      total = total + i
   end do
   if (total /= 5050) failures = failures + 1
   call omp_init_nest_lock(lock)
!$omp parallel num_threads(4)
   call omp_set_nest_lock(lock)
   if (omp_test_nest_lock(lock) /= 2) failures = failures + 1
   total = total + 1
   call omp_unset_nest_lock(lock)
   call omp_unset_nest_lock(lock)
!$omp end parallel
   call omp_destroy_nest_lock(lock)
   if (total /= 5054) failures = failures + 1
!$omp parallel num_threads(3)
!$omp single
   do i = 1, 20
!$omp task
!$omp atomic
      total = total + 1
!$omp end task
   end do
!$omp end single
!$omp end parallel
   if (total /= 5074) failures = failures + 1
   if (failures == 0) then
      print *, 'PASSED'
   else
      print *, 'FAILED', failures
   end if
end program
