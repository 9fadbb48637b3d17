# Which of several architectures a kernel is compiled for: sm_90a alone, if the comment at its head says that it
# `Supports` no other, even where that one was not asked for. For the others its code would be traps, and take as long to
# make; and what it asks of CUDA's own headers does not compile.
#   architectures_of(<file.cu> <result> <architecture>...)
function(architectures_of file result)
  set(chosen ${ARGN})
  file(READ ${file} text LIMIT 4000)
  string(REGEX MATCH "// Supports [^\n]*(\n//   [^\n]*)*" supports "${text}")
  if(supports MATCHES "sm_90a")
    list(FILTER chosen INCLUDE REGEX "^90a")
    if(NOT chosen)
      set(chosen 90a-real)
    endif()
  endif()
  set(${result} ${chosen} PARENT_SCOPE)
endfunction()
