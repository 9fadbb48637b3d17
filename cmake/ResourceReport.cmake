# Prints what ptxas says of every kernel of every solution, and looks at the machine code. Each of these makes a kernel
# slow without making it wrong, so that no test would notice, and fails here:
#   - registers are spilled, or an array is kept in local memory (a stack frame)
#   - wgmma is serialized, or waits where the source does not: the compiler says so as `info` (C7510 to C7519)
#   - the instructions that the rung is about are missing
#   - from rung 13 on, a loop with products by wgmma has R2UR: the compiler could not prove that all lanes of a warp have the
#     same address of an operand, and fetches it from a vector register in every step
#   cmake -D NVCC=... -D BUILD=build/gpu -P ResourceReport.cmake
# Takes the objects in BUILD, and what the compiler said of them (keep_output.sh). cuobjdump and nvdisasm are those beside
# nvcc, else those that BUILD/binary-tools has or gets from pip.

include(${CMAKE_CURRENT_LIST_DIR}/RungNumber.cmake)
set(TOOLS ${BUILD}/binary-tools)
set(OUTPUT ${BUILD}/resource-report)

# What a rung's machine code must have on every architecture, by its number; an empty list: nothing in particular.
set(instructions_00 "")
set(instructions_01 "")
set(instructions_02 "")
set(instructions_03 "")
set(instructions_04 HMMA LDSM)
set(instructions_05 HMMA LDSM)
set(instructions_06 HMMA LDSM)
set(instructions_07 HMMA LDGSTS)
set(instructions_08 HMMA UTMALDG)
set(instructions_15 "")
set(instructions_16 "")
set(instructions_17 "")
set(instructions_18 HMMA LDSM)
set(instructions_19 HMMA LDSM LDGSTS)
set(instructions_later HGMMA UTMALDG)
set(instructions_capstone-1 "")
set(instructions_capstone-2 HMMA LDSM LDGSTS)
set(instructions_capstone-4 "")

# ---- cuobjdump, which finds nvdisasm beside itself or in PATH

cmake_path(GET NVCC PARENT_PATH beside)
find_program(CUOBJDUMP cuobjdump PATHS ${beside} NO_DEFAULT_PATH)
find_program(NVDISASM nvdisasm PATHS ${beside} NO_DEFAULT_PATH)
if(NOT CUOBJDUMP OR NOT NVDISASM)
  foreach(attempt IN ITEMS found installed)
    file(GLOB_RECURSE CUOBJDUMP ${TOOLS}/cuobjdump)
    file(GLOB_RECURSE NVDISASM ${TOOLS}/nvdisasm)
    if((CUOBJDUMP AND NVDISASM) OR attempt STREQUAL installed)
      break()
    endif()
    execute_process(COMMAND python3 -m pip install --quiet --target ${TOOLS} nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)
  endforeach()
  if(NOT CUOBJDUMP OR NOT NVDISASM)
    message(FATAL_ERROR "no cuobjdump and nvdisasm beside ${NVCC}, and pip could not install them to ${TOOLS}")
  endif()
endif()
cmake_path(GET NVDISASM PARENT_PATH folder)
set(ENV{PATH} "${folder}:$ENV{PATH}")

# ---- the solutions, and the learner's files that have been built

set(bad "")
file(GLOB logs ${BUILD}/CMakeFiles/*.dir/solutions/*/*.cu.o.log
  ${BUILD}/*/CMakeFiles/*.dir/__/chapters/*/*.cu.o.log
  ${BUILD}/tools/ladder/CMakeFiles/*.dir/__/__/chapters/*/*.cu.o.log
  ${BUILD}/*/CMakeFiles/chapter-*.dir/__/solutions/*/variants.cu.o.log)
list(SORT logs)
if(NOT logs)
  message(FATAL_ERROR "nothing is built in ${BUILD}")
endif()
foreach(log IN LISTS logs)
  string(REGEX REPLACE "\\.log$" "" object ${log})
  cmake_path(GET object PARENT_PATH folder)
  cmake_path(GET folder FILENAME rung)
  if(object MATCHES "/__/")
    string(APPEND rung " (yours)")
  endif()
  execute_process(COMMAND c++filt INPUT_FILE ${log} OUTPUT_VARIABLE report)
  string(REPLACE ";" "," report "${report}")
  string(REPLACE "\n" ";" lines "${report}")
  foreach(line IN LISTS lines)
    if(line MATCHES "\\(C751[0-9]\\)" OR line MATCHES "wgmma.*serialized")
      message("${rung}  ${line}")
      list(APPEND bad "${rung}: the compiler changes the order of wgmma")
    elseif(line MATCHES "Compiling entry function '(.*)' for '(sm_[0-9a-z]+)'")
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
        list(APPEND bad "${rung}: ${kernel} uses local memory on ${architecture}")
      endif()
    endif()
  endforeach()

  number_of(${rung} number)
  if(NOT DEFINED instructions_${number})
    set(instructions_${number} ${instructions_later})
  endif()
  if(instructions_${number})
    string(REGEX MATCHALL "for 'sm_[0-9]+[a-z]*'" compiled "${report}")
    list(REMOVE_DUPLICATES compiled)
    string(REGEX REPLACE "for '|'" "" compiled "${compiled}")
    foreach(architecture IN LISTS compiled)
      execute_process(COMMAND ${CUOBJDUMP} -sass -arch ${architecture} ${object}
        OUTPUT_FILE ${OUTPUT}.sass RESULT_VARIABLE status)
      if(NOT status EQUAL 0)
        message(FATAL_ERROR "cuobjdump cannot read the machine code of ${rung} for ${architecture}")
      endif()
      set(counts "")
      foreach(instruction IN LISTS instructions_${number})
        execute_process(COMMAND grep -cw ${instruction} ${OUTPUT}.sass OUTPUT_VARIABLE count
          OUTPUT_STRIP_TRAILING_WHITESPACE)
        list(APPEND counts "${count} ${instruction}")
        if(count EQUAL 0)
          list(APPEND bad "${rung}: no ${instruction} on ${architecture}")
        endif()
      endforeach()
      if(number GREATER_EQUAL 13 AND "${instructions_${number}}" MATCHES HGMMA)
        # With 192 columns and more, Q has more descriptors than there are uniform registers. Of 22/deterministic (in_order) one
        # kernel, d 64 and causal, has one R2UR, beside no product: the block with which a head's queries begin.
        set(except "ConfigurationELi(192|256)E|PagedAttention.*Li256E|RingAttention.*Li256E")
        set(one "out_of_stepI.*Li64ELb1ELb1EEE")
        execute_process(COMMAND awk -v "except=${except}" -v "one=${one}" -f ${CMAKE_CURRENT_LIST_DIR}/loops.awk ${OUTPUT}.sass
          OUTPUT_FILE ${OUTPUT}.loops)
        foreach(instruction IN ITEMS HGMMA R2UR)
          execute_process(COMMAND grep -c ^${instruction} ${OUTPUT}.loops OUTPUT_VARIABLE in_loops_${instruction}
            OUTPUT_STRIP_TRAILING_WHITESPACE)
          list(APPEND counts "${in_loops_${instruction}} ${instruction} in loops")
        endforeach()
        if(in_loops_HGMMA EQUAL 0)
          list(APPEND bad "${rung}: no loop with HGMMA found on ${architecture}")
        elseif(NOT in_loops_R2UR EQUAL 0)
          list(APPEND bad "${rung}: R2UR in the loop with the products on ${architecture}")
        endif()
      endif()
      list(JOIN counts ", " counts)
      message("${rung}  ${architecture}  machine code: ${counts}")
    endforeach()
  endif()
endforeach()
if(bad)
  list(REMOVE_DUPLICATES bad)
  list(JOIN bad "\n  " bad)  # indented, it is printed as it is
  message(FATAL_ERROR "slow without being wrong:\n  ${bad}")
endif()
