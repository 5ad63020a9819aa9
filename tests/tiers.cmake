# SPDX-License-Identifier: Apache-2.0
# Which run has a test: tests/tiers.txt has a line "TIER NAME SECONDS [GROUP]" for each. Tier `first` is tests/run.sh; 0 to 6 are the
# parts that .ci/run takes turns with: their tests are labelled part<n>, and tests_part_<n> builds what they need. A
# target of tests, or an example, that only parts need is not in `all`.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tiers.txt)
file(STRINGS tiers.txt lines REGEX "^[^#]")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^(first|[0-6]) +([^ ]+) +[0-9.]+( +[^ ]+)?$")
    message(FATAL_ERROR "tests/tiers.txt: '${line}' is not 'TIER NAME SECONDS [GROUP]' with a tier that is first or 0 to 6")
  elseif(DEFINED tier_of_${CMAKE_MATCH_2})
    message(FATAL_ERROR "tests/tiers.txt lists ${CMAKE_MATCH_2} twice; a test belongs to one tier")
  endif()
  set(tier_of_${CMAKE_MATCH_2} "${CMAKE_MATCH_1}")
endforeach()

foreach(part RANGE 6)
  add_custom_target(tests_part_${part})
endforeach()
set_property(GLOBAL PROPERTY tessera_tested_targets "")

# tessera_tier_of(<test> <label> <word>...): sets the variable to the label of the test's part, "" in the first tier, and
# records which targets the words of its command name.
function(tessera_tier_of test label)
  set(tier "${tier_of_${test}}")
  if(CMAKE_CROSSCOMPILING)  # by hand, all of it
    set(tier first)
  elseif(tier STREQUAL "")
    message(FATAL_ERROR "tests/tiers.txt does not list the test ${test}; add a line 'TIER ${test} SECONDS', where the tier is first "
      "for what every change may break, and otherwise a part, 0 to 6")
  endif()
  foreach(word IN LISTS ARGN)
    string(REGEX REPLACE "^\\$<TARGET_FILE:([^>]+)>$" "\\1" target "${word}")
    if(TARGET ${target})
      set_property(GLOBAL APPEND PROPERTY tessera_tested_targets ${target})
      set_property(GLOBAL APPEND PROPERTY tessera_tiers_of_${target} ${tier})
    endif()
  endforeach()
  set(${label} "" PARENT_SCOPE)
  if(NOT tier STREQUAL "first")
    set(${label} "part${tier}" PARENT_SCOPE)
  endif()
endfunction()

function(tessera_build_parts)
  get_property(targets GLOBAL PROPERTY tessera_tested_targets)
  list(REMOVE_DUPLICATES targets)
  foreach(target IN LISTS targets)
    get_property(tiers GLOBAL PROPERTY tessera_tiers_of_${target})
    list(REMOVE_DUPLICATES tiers)
    if(target MATCHES "^(tests|example)_" AND NOT "first" IN_LIST tiers)
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
    list(REMOVE_ITEM tiers first)
    foreach(tier IN LISTS tiers)
      add_dependencies(tests_part_${tier} ${target})
    endforeach()
  endforeach()
endfunction()
cmake_language(DEFER CALL tessera_build_parts)
