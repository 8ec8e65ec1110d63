! What the library has to know about the compiler.
subroutine margay_fortran_facts(logical_true, logical_false, sizes)
  implicit none
  integer, intent(out) :: logical_true, logical_false, sizes(4)
  logical_true = transfer(.true., logical_true)
  logical_false = transfer(.false., logical_false)
  sizes(1) = storage_size(.true.) / 8
  sizes(2) = storage_size(0) / 8
  sizes(3) = storage_size(0.0) / 8
  sizes(4) = storage_size(0.0d0) / 8
end subroutine
