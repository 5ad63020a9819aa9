# SPDX-License-Identifier: Apache-2.0
# Writes tessera.pc, and tessera-<component>.pc for each component that was built, for builds without CMake:
#   g++ -std=c++20 trainer.cpp $(pkg-config --cflags --libs tessera-trainer tessera-mpi)
# Our libraries are static, so that all their dependencies are in Libs, not in Libs.private. Other libraries are given
# by their paths, since they may be outside of the linker's search path. The language's standard is the user's: C++20 or newer.

# tessera_write_pkg_config(<component> <description> <requires> <libs>)
function(tessera_write_pkg_config component description requires libs)
  set(name tessera)
  set(library tessera)
  if(component)
    set(name tessera-${component})
    set(library tessera_${component})
  endif()
  if(NOT TARGET ${library})
    return()
  endif()
  set(directory "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  get_target_property(type ${library} TYPE)
  set(archive "-L\${libdir} -l${library}")
  if(type STREQUAL "INTERFACE_LIBRARY")
    set(archive "")
  endif()
  file(RELATIVE_PATH to_prefix "/${directory}" "/")
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  string(CONCAT text
    "prefix=\${pcfiledir}/${to_prefix}\n"
    "libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}\n"
    "includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}\n\n"
    "Name: ${name}\nDescription: ${description}\nVersion: ${PROJECT_VERSION}\n"
    "Requires: ${requires}\nCflags: -I\${includedir}\nLibs: ${archive} ${libs}\n")
  file(WRITE "${PROJECT_BINARY_DIR}/${name}.pc" "${text}")
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${directory}" COMPONENT dev)
endfunction()

# The library that our code calls; -fopenmp would compile the user's code by OpenMP, too.
set(openmp -lgomp)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(openmp -lomp)
endif()
tessera_write_pkg_config(core "Tessera's errors, strings and numbers" "" "")
tessera_write_pkg_config(json "Tessera's strict JSON" tessera-core "")
tessera_write_pkg_config(text "Tokenizers and chat templates in C++20" tessera-json "${PCRE2_LIBRARY} ${utf8proc_LIBRARY}")
tessera_write_pkg_config(sharding "Sharding of weights, gradients and optimizer states in C++20" tessera-core "${openmp} -pthread")
tessera_write_pkg_config("" "Sharded training in C++20: the library" tessera-sharding "${oneDNN_LIBRARY}")
tessera_write_pkg_config(checkpoint "Tessera's checkpoints" "tessera-sharding tessera-json" "${ISAL_LIBRARY}")
tessera_write_pkg_config(model_files "Tessera's folders of models" "tessera-checkpoint tessera" "")
tessera_write_pkg_config(trainer "Tessera's training programs: train_main" "tessera-model_files tessera-text" "")
tessera_write_pkg_config(foreign_testing "Tessera's suites of loops, strategies, communicators, precisions and devices" "tessera-sharding gtest" "")
tessera_write_pkg_config(testing "Tessera's conformance kit" "tessera-model_files gtest" "")
set(mpi_libraries ${MPI_CXX_LIBRARIES})
list(FILTER mpi_libraries EXCLUDE REGEX "mpi_cxx")  # MPI's C++ interface, which we do not use
list(JOIN mpi_libraries " " mpi_libraries)
tessera_write_pkg_config(mpi "Tessera's ranks as processes of MPI" tessera-sharding "${mpi_libraries}")
tessera_write_pkg_config(cuda_runtime "Tessera's device Cuda: memory, streams and graphs" tessera-sharding "${CUDA_cudart_static_LIBRARY} -ldl -lrt")
set(cuda_libraries "${CUDA_cublasLt_LIBRARY}")
if(TESSERA_HAVE_CUDNN)
  string(APPEND cuda_libraries " ${cuDNN_LIBRARY} ${CUDA_nvrtc_LIBRARY}")
endif()
tessera_write_pkg_config(cuda "Tessera's device Cuda: its operations" "tessera-cuda_runtime tessera" "${cuda_libraries}")
tessera_write_pkg_config(nccl "Tessera's ranks over NCCL" tessera-sharding "${NCCL_LIBRARY} ${CUDA_cudart_static_LIBRARY} -ldl -lrt")
