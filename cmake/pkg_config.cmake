# SPDX-License-Identifier: Apache-2.0
# Writes tessera.pc, and tessera-mpi.pc if MPI was found, for builds without CMake:
#   g++ trainer.cpp $(pkg-config --cflags --libs tessera-mpi)
# Our libraries are static, so that all their dependencies are in Libs, not in Libs.private. Other libraries are given
# by their paths, since they may be outside of the linker's search path.

# tessera_write_pkg_config(<name> <description> <requires> <cflags> <libs>)
function(tessera_write_pkg_config name description requires cflags libs)
  set(directory "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH to_prefix "/${directory}" "/")
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  string(CONCAT text
    "prefix=\${pcfiledir}/${to_prefix}\n"
    "libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}\n"
    "includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}/tessera\n\n"
    "Name: ${name}\nDescription: ${description}\nVersion: ${PROJECT_VERSION}\n"
    "Requires: ${requires}\nCflags: ${cflags}\nLibs: ${libs}\n")
  file(WRITE "${PROJECT_BINARY_DIR}/${name}.pc" "${text}")
  install(FILES "${PROJECT_BINARY_DIR}/${name}.pc" DESTINATION "${directory}" COMPONENT dev)
endfunction()

set(flags "-std=c++20 ${OpenMP_CXX_FLAGS} -pthread")
tessera_write_pkg_config(tessera "${PROJECT_DESCRIPTION}" "" "-I\${includedir} ${flags}"
  "-L\${libdir} -ltessera ${oneDNN_LIBRARY} ${ISAL_LIBRARY} ${PCRE2_LIBRARY} ${utf8proc_LIBRARY} ${OpenMP_CXX_FLAGS} -pthread")
if(TARGET tessera_mpi)
  set(mpi_libraries ${MPI_CXX_LIBRARIES})
  list(FILTER mpi_libraries EXCLUDE REGEX "mpi_cxx")  # MPI's C++ interface, which we do not use
  list(JOIN mpi_libraries " " mpi_libraries)
  tessera_write_pkg_config(tessera-mpi "Tessera's ranks as processes of MPI" tessera "" "-L\${libdir} -ltessera_mpi ${mpi_libraries}")
endif()
