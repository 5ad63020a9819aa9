# SPDX-License-Identifier: Apache-2.0
# Toolchain file for cross-compiling to aarch64 with g++ 12: Debian's arm64 packages are in a sysroot, and programs run
# under qemu. On an aarch64 machine no toolchain file is needed.
#
#   apt-get install g++-aarch64-linux-gnu qemu-user-static && cmake/aarch64_sysroot.sh && cmake --preset aarch64
#
# Hints: CMAKE_SYSROOT, if the packages are elsewhere; TESSERA_QEMU_CPU, one of `qemu-aarch64-static -cpu help`.
if(NOT CMAKE_SYSROOT)
  get_filename_component(CMAKE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot" ABSOLUTE)
endif()
if(NOT EXISTS "${CMAKE_SYSROOT}/.packages")
  message(FATAL_ERROR "tessera: no arm64 packages in ${CMAKE_SYSROOT}; run cmake/aarch64_sysroot.sh ${CMAKE_SYSROOT}")
endif()
if(NOT TESSERA_QEMU_CPU)
  set(TESSERA_QEMU_CPU cortex-a76)  # ARMv8.2 without SVE and without bf16
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-cpu;${TESSERA_QEMU_CPU};-L;${CMAKE_SYSROOT}")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CMAKE_SYSROOT TESSERA_QEMU_CPU)

set(CMAKE_FIND_ROOT_PATH "${CMAKE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()

# FindMPI would ask mpicxx and pkg-config, which only know the build machine's libraries.
set(openmpi "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi")
set(MPI_SKIP_COMPILER_WRAPPER TRUE)
set(ENV{PKG_CONFIG_LIBDIR} "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig")
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_CXX_HEADER_DIR "${openmpi}/include" CACHE PATH "")
set(MPI_mpi_LIBRARY "${openmpi}/lib/libmpi.so" CACHE FILEPATH "")
