# The rungs and what is made of each: its solution, the learner's chapter, starters and mutants.

file(GLOB FLASHLADDER_RUNGS RELATIVE ${CMAKE_SOURCE_DIR}/solutions CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/[0-9]*)
list(SORT FLASHLADDER_RUNGS)

# solution-NN-name: the kernel of solutions/NN-name, for tests and tools to link.
function(add_rungs)
  foreach(rung IN LISTS FLASHLADDER_RUNGS)
    add_kernels(solution-${rung} ${CMAKE_SOURCE_DIR}/solutions/${rung}/attention.cu)
  endforeach()
  add_kernels(gemm ${CMAKE_SOURCE_DIR}/solutions/14-lcsf/gemm.cu)  # the template's other kernel
endfunction()
