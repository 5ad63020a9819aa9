// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls that cudnn-frontend's headers compile in for kernels of their own, for timing and for dumps, and that
/// attention never makes. Without the libraries' headers: nothing here looks at an argument.
namespace fsdp::testing::cuda_host {

int never_called(const char* function);

}  // namespace fsdp::testing::cuda_host

#define NEVER(function) \
  extern "C" int function() { return fsdp::testing::cuda_host::never_called(#function); }

NEVER(cudaEventCreate)
NEVER(cudaEventElapsedTime)
NEVER(cudaEventSynchronize)
NEVER(cudaKernelSetAttributeForDevice)
NEVER(cudaLaunchKernel)
NEVER(cudaLibraryGetKernel)
NEVER(cudaLibraryLoadData)
NEVER(cudaLibraryUnload)
NEVER(cudaMemsetAsync)
NEVER(cudaPointerGetAttributes)
NEVER(cudnnCreateFilterDescriptor)
NEVER(cudnnDestroyFilterDescriptor)
NEVER(cudnnReorderFilterAndBias)
NEVER(cudnnSetFilterNdDescriptor)
NEVER(nvrtcCompileProgram)
NEVER(nvrtcCreateProgram)
NEVER(nvrtcDestroyProgram)
NEVER(nvrtcGetCUBIN)
NEVER(nvrtcGetCUBINSize)
NEVER(nvrtcGetProgramLog)
NEVER(nvrtcGetProgramLogSize)
