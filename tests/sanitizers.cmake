# SPDX-License-Identifier: Apache-2.0
# What tests of a build with a sanitizer leave out: stacks compile slowly under one, and loops run slowly. The release build
# has all of it.
set(left_out_stacks "^$")  # sources of support/stacks, as a regular expression
set(left_out_tests "^$")   # sources of tests, by their paths, as a regular expression
set(left_out_cases "")     # what follows GoogleTest's --gtest_filter=-
if(NOT TESSERA_SANITIZER)
  return()
endif()

# Stacks on queues check every access themselves, and run-time strategies cover the types. Plans do not access memory.
set(left_out_stacks "/stacks/((nccl|queued)_[^/]*|strategy_types|by_placement)\\.cpp$")
set_source_files_properties(support/stacks/runners.cpp PROPERTIES COMPILE_DEFINITIONS TESSERA_TEST_FEWER_STACKS)
set(left_out_tests "plan/plan_test|sharding/(any_strategy|(nccl|queued)[^/]*)_test|testing/(communicator|model|module|optimizer|strategy)_test")

# Large matmuls and sums, which the release build compares; bitwise comparisons over many runs of the same code.
set(left_out_cases "*AtFullSize:*WhateverTheThreads:*SumsMoreThanItsScratchHolds.*OfAnyNumber:*CommunicatorSuite*SumsMoreThanItsScratchHolds:NcclCollectives.AddSums*")
string(APPEND left_out_cases ":RunTimeStrategies.*:Layouts.*MatmulsAreJoined")

# Each sanitizer has one sweep over all strategies: AddressSanitizer those of layouts, memory and recomputation,
# ThreadSanitizer that of parity, and communicators on queues.
if(TESSERA_SANITIZER STREQUAL "address")
  string(APPEND left_out_tests "|comm/(nccl(_promises)?|queued_threads)_test")
  string(APPEND left_out_cases ":Parity.StrategiesGiveTheSame*")
elseif(TESSERA_SANITIZER STREQUAL "thread")  # other tests have the same threads and collectives
  string(APPEND left_out_tests "|(sharding/(check|layouts|memory|offload|optimizers|assign_slots|residency|targets|tiling)|module/units)_test")
  string(APPEND left_out_cases ":InitialValues.*:Collectives.*:Resume.ReadsEveryValue*:Parity.Clipping*")
  string(APPEND left_out_cases ":Sequence.ExchangesAreCounted*:Sequence.IsCutIntoParts*:Sequence.RanksHoldTheirPart*")
  # Long sums are those of Threads and of NCCL's WithChecksOn.
  foreach(way APart *Alone InRegisteredMemory)
    string(APPEND left_out_cases ":*SumsMoreThanItsScratchHolds.${way}")
  endforeach()
endif()
