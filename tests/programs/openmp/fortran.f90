! OpenMP from Fortran: routines of both kinds of integers, loops, nested locks, threadprivate commons, teams.
program fortran
  use omp_lib
  implicit none
  integer :: i, total, own, failures, kind
  integer(8) :: wide
  integer(omp_sched_kind) :: schedule
  integer(omp_nest_lock_kind) :: lock
  common /block/ own
  !$omp threadprivate(/block/)

  failures = 0
  call omp_set_num_threads(5)
  call omp_set_schedule(omp_sched_guided, 3)
  call omp_get_schedule(schedule, kind)
  if (schedule /= omp_sched_guided .or. kind /= 3) failures = failures + 1
  wide = 0
  if (omp_get_ancestor_thread_num(int(wide)) /= 0) failures = failures + 1
  call omp_init_nest_lock(lock)
  total = 0
  !$omp parallel
  own = omp_get_thread_num()
  !$omp do schedule(runtime) reduction(+:total)
  do i = 1, 100
     total = total + i
  end do
  call omp_set_nest_lock(lock)
  if (omp_test_nest_lock(lock) /= 2) failures = failures + 1
  call omp_unset_nest_lock(lock)
  call omp_unset_nest_lock(lock)
  !$omp barrier
  !$omp critical
  if (own /= omp_get_thread_num()) failures = failures + 1
  !$omp end critical
  !$omp workshare
  total = total + 1
  !$omp end workshare
  !$omp end parallel
  call omp_destroy_nest_lock(lock)
  if (total /= 5051) failures = failures + 1
  total = 0
  !$omp target teams distribute parallel do map(tofrom: total) reduction(+:total)
  do i = 1, 1000
     total = total + 1
  end do
  if (total /= 1000) failures = failures + 1
  if (failures == 0) then
     print '(a)', 'PASSED'
  else
     print '(a,i0)', 'FAILED ', failures
     stop 1
  end if
end program
