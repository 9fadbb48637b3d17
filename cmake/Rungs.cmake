# The rungs and what is made of each: its solution, the learner's chapter, starters and mutants.

file(GLOB FLASHLADDER_RUNGS RELATIVE ${CMAKE_SOURCE_DIR}/solutions CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/[0-9]*)
list(SORT FLASHLADDER_RUNGS)

# The file of a rung's variants, if it has one.
function(variants_of rung result)
  file(GLOB file CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/solutions/${rung}/variants.cu)
  set(${result} "${file}" PARENT_SCOPE)
endfunction()

# solution-NN-name: the kernel of solutions/NN-name, for tests and tools to link.
function(add_rungs)
  foreach(rung IN LISTS FLASHLADDER_RUNGS)
    variants_of(${rung} variants)
    add_kernels(solution-${rung} ${CMAKE_SOURCE_DIR}/solutions/${rung}/attention.cu VARIANTS ${variants})
  endforeach()
  add_kernels(gemm ${CMAKE_SOURCE_DIR}/solutions/14-lcsf/gemm.cu)  # the template's other kernel
endfunction()
