# "07" of 07-async-copies, "14b" of 14b-gemm, "capstone-1" of capstone-1-sliding-window. number_of() of
# tools/ladder/chapters.h does the same.
function(number_of rung result)
  string(REGEX MATCH "^(capstone-)?[^- ]*" number ${rung})
  set(${result} ${number} PARENT_SCOPE)
endfunction()
