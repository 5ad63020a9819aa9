# SPDX-License-Identifier: Apache-2.0
# Finds cuDNN, for attention: its library, and cudnn-frontend, which is header-only. Include it after cuda.cmake. Sets
# TESSERA_HAVE_CUDNN and CUDNN_FRONTEND_INCLUDE_DIR. Hints: cuDNN_ROOT, CUDNN_FRONTEND_ROOT.

# Sets `problem` to the reason why cuDNN cannot be used; to an empty text if it can.
macro(tessera_cudnn_problem problem)
  set(${problem} "")
  set(cudnn_frontend_version "")
  find_package(cuDNN 9.0 QUIET)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend_version.h
    HINTS ${CUDNN_FRONTEND_ROOT} ENV CUDNN_FRONTEND_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  mark_as_advanced(CUDNN_FRONTEND_INCLUDE_DIR)
  if(CUDNN_FRONTEND_INCLUDE_DIR)
    foreach(part MAJOR MINOR PATCH)
      file(STRINGS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h" line
        REGEX "#define CUDNN_FRONTEND_${part}_VERSION +[0-9]+")
      string(REGEX MATCH "[0-9]+" number "${line}")
      list(APPEND cudnn_frontend_version "${number}")
    endforeach()
    list(JOIN cudnn_frontend_version "." cudnn_frontend_version)
  endif()
  if(NOT TESSERA_HAVE_CUDA)
    set(${problem} "needs CUDA")
  elseif(NOT cuDNN_FOUND)
    set(${problem} "no cudnn.h and libcudnn of version 9, see cuDNN_ROOT")
  elseif(NOT CUDNN_FRONTEND_INCLUDE_DIR)
    set(${problem} "${cuDNN_VERSION}, without cudnn-frontend's headers, see CUDNN_FRONTEND_ROOT")
  elseif(cudnn_frontend_version VERSION_LESS 1.14)
    set(${problem} "${cuDNN_VERSION}, cudnn-frontend ${cudnn_frontend_version} is older than 1.14")
  elseif(NOT TARGET CUDA::nvrtc)
    set(${problem} "${cuDNN_VERSION}, without NVRTC, which cudnn-frontend calls")
  endif()
endmacro()

set(TESSERA_HAVE_CUDNN FALSE)
if(TESSERA_ENABLE_CUDNN STREQUAL "OFF")
  tessera_row("cuDNN" FALSE "switched off")
else()
  tessera_cudnn_problem(cudnn_problem)
  if(NOT cudnn_problem)
    set(TESSERA_HAVE_CUDNN TRUE)
    tessera_row("cuDNN" TRUE "${cuDNN_VERSION}, cudnn-frontend ${cudnn_frontend_version}")
  elseif(TESSERA_ENABLE_CUDNN STREQUAL "ON")
    message(FATAL_ERROR "tessera: TESSERA_ENABLE_CUDNN is ON and cuDNN cannot be used: ${cudnn_problem}; "
                        "mend that, or set TESSERA_ENABLE_CUDNN to AUTO or OFF")
  else()
    tessera_row("cuDNN" FALSE "${cudnn_problem}")
  endif()
endif()
