# The rungs, capstones among them, and what is made of each: its solution, the learner's chapter, starters and mutants.

include(RungNumber)

file(GLOB FLASHLADDER_RUNGS RELATIVE ${CMAKE_SOURCE_DIR}/solutions CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/[0-9]*
  ${CMAKE_SOURCE_DIR}/solutions/capstone-*)
list(SORT FLASHLADDER_RUNGS)

# The kernel of a rung is the file that is named like its operation, a folder of common/operations: attention.cu. Sets
# `operation` and `number`.
macro(get_rung rung)
  number_of(${rung} number)
  file(GLOB operation RELATIVE ${CMAKE_SOURCE_DIR}/solutions/${rung} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/${rung}/*.cu)
  list(REMOVE_ITEM operation variants.cu)
  string(REPLACE ".cu" "" operation "${operation}")
  if(NOT IS_DIRECTORY ${CMAKE_SOURCE_DIR}/common/operations/${operation})
    message(FATAL_ERROR "solutions/${rung} must have one kernel, named like a folder of common/operations: found '${operation}'")
  endif()
endmacro()
# The file of a rung's variants, if it has one.
function(variants_of rung result)
  file(GLOB file CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/${rung}/variants.cu)
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# solution-NN-name: the kernel of solutions/NN-name, for tests and tools to link.
function(add_rungs)
  foreach(rung IN LISTS FLASHLADDER_RUNGS)
    get_rung(${rung})
    variants_of(${rung} variants)
    add_kernels(solution-${rung} ${CMAKE_SOURCE_DIR}/solutions/${rung}/${operation}.cu VARIANTS ${variants})
  endforeach()
endfunction()
