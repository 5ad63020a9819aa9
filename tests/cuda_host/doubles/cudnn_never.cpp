// SPDX-License-Identifier: Apache-2.0
/// @file
/// Functions that cudnn-frontend's headers link for their own kernels, for timing and for dumps, and that attention
/// never calls. No library headers are included: no function here uses an argument.
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
