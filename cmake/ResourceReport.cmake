# Prints what ptxas says of every kernel of every solution, and fails if one spills registers or keeps an array in local
# memory (a stack frame): either makes a kernel slow without making it wrong, so that no test would notice.
#   cmake -D NVCC=... -D ROOT=... -D ARCHITECTURES=80-real;90a-real -D OUTPUT=scratch.o -P ResourceReport.cmake

foreach(architecture IN LISTS ARCHITECTURES)
  string(REGEX REPLACE "-(real|virtual)$" "" number ${architecture})
  if(number MATCHES "^[0-9]")
    list(APPEND targets -gencode arch=compute_${number},code=sm_${number})
  else()
    list(APPEND targets -arch=${architecture})  # native, all-major
  endif()
endforeach()

set(bad "")
file(GLOB solutions ${ROOT}/solutions/[0-9]*/attention.cu)
list(SORT solutions)
foreach(solution IN LISTS solutions)
  cmake_path(GET solution PARENT_PATH folder)
  cmake_path(GET folder FILENAME rung)
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 ${targets} -I ${ROOT}/common -D FLASHLADDER_GPU --resource-usage -c ${solution} -o ${OUTPUT}
    OUTPUT_FILE ${OUTPUT}.txt ERROR_FILE ${OUTPUT}.txt RESULT_VARIABLE status)
  execute_process(COMMAND c++filt INPUT_FILE ${OUTPUT}.txt OUTPUT_VARIABLE report)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${rung} does not compile:\n${report}")
  endif()
  string(REPLACE "\n" ";" lines "${report}")
  foreach(line IN LISTS lines)
    if(line MATCHES "Compiling entry function '(.*)' for '(sm_[0-9a-z]+)'")
      set(architecture ${CMAKE_MATCH_2})
      string(REPLACE "(anonymous namespace)::" "" kernel "${CMAKE_MATCH_1}")
      string(REGEX REPLACE "\\(.*" "" kernel "${kernel}")
      string(REGEX REPLACE ".*::" "" kernel "${kernel}")
    elseif(line MATCHES "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads")
      set(stack ${CMAKE_MATCH_1})
      set(spills ${CMAKE_MATCH_2})
    elseif(line MATCHES "Used ([0-9]+) registers")
      message("${rung}  ${architecture}  ${kernel}: ${CMAKE_MATCH_1} registers, ${stack} bytes of stack, ${spills} spilled")
      # A Variant is there to be compared with: some show what spilling costs.
      if(NOT "${stack} ${spills}" STREQUAL "0 0" AND NOT kernel MATCHES "Variant<")
        list(APPEND bad "${rung} ${kernel} ${architecture}")
      endif()
    endif()
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "these kernels use local memory: ${bad}")
endif()
